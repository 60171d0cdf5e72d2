"""What is recorded: pages, and the labels that Prometheus would give their series."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from obs.errors import InputError
from obs.evaluate.record.scrub import Scrubber
from obs.sidecar.scrape import Target, shown

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_PAGE = "http://127.0.0.1:8002/metrics,instance=a"


@dataclass(frozen=True)
class Source:
    """A page to scrape: where, its labels, and the sub-folder of the recording that holds its scrapes."""

    target: Target
    labels: Mapping[str, str]
    folder: str = ""

    @property
    def name(self) -> str:
        """The address as it may be shown."""
        return shown(self.target.url)


def parse(text: str) -> tuple[str, dict[str, str], dict[str, str]]:
    """``URL[,label=value…][,authorization-file=…][,ca-file=…]`` → URL, labels, files.

    ``instance`` is the URL's host and port, as in Prometheus, unless it is given. InputError, naming the part.
    """
    url, *parts = text.split(",")
    where = f"--target {shown(url)}"
    split = Target(url).split()
    host = f"[{split.hostname}]" if ":" in (split.hostname or "") else split.hostname
    labels = {"instance": f"{host}:{split.port or (443 if split.scheme == 'https' else 80)}"}
    files: dict[str, str] = {}
    seen = set()
    for part in parts:
        name, equals, value = part.partition("=")
        if not equals or not value:
            raise InputError(f"{where}: {name!r} is no label=value; write it like {_PAGE} (a comma of a URL as %2C)")
        if name in seen:
            raise InputError(f"{where}: {name} is given twice; give it once")
        seen.add(name)
        if name in ("authorization-file", "ca-file"):
            files[name] = value
        elif _LABEL.fullmatch(name) and not name.startswith("__"):
            labels[name] = value
        else:
            raise InputError(f"{where}: {name!r} is no label's name; write it like {_PAGE}")
    return url, labels, files


def arrange(sources: Sequence[Source], scrubber: Scrubber) -> list[Source]:
    """The sources with scrubbed labels and a folder each; InputError when two are the same, or become so."""
    urls: set[str] = set()
    seen: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}
    folders: set[str] = set()
    arranged = []
    for number, one in enumerate(sources, 1):
        if one.target.url in urls:
            raise InputError(f"--target {one.name}: is given twice; give it once")
        urls.add(one.target.url)
        labels = scrubber.labels(one.labels)
        key = tuple(sorted(labels.items()))
        if key in seen:
            names = scrubber.apart(seen[key], one.labels)
            if names:
                raise InputError(
                    f"--target {one.name}: without label {names} it has the labels of another target; "
                    "give them another label that tells them apart, such as replica=a"
                )
            raise InputError(f"--target {one.name}: has the labels of another target; give it an instance= of its own")
        seen[key] = one.labels
        # the folder's name must not tell what was scrubbed: it is made from what is left
        folder = re.sub(r"[^A-Za-z0-9._-]+", "-", labels.get("instance", "")).strip(".-")[:80] or f"target-{number}"
        while folder.lower() in {*folders, "wal", "targets.yaml"}:  # with "wal" it would look like a Prometheus data directory
            folder = f"{folder}-{number}"
        folders.add(folder.lower())
        arranged.append(Source(one.target, labels, folder))
    return arranged
