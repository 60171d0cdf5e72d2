"""Which dashboards are meant: of the pack by name, of a file, or all in a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from obs.config import Config
from obs.errors import InputError
from obs.preview.load import Dashboard, parse


def of_pack(config: Config) -> dict[str, str]:
    """Stem → JSON of the pack's dashboards, the same bytes that ``obs build`` writes."""
    from obs.build import render_all

    found = {path: text for path, text in render_all(config).items() if path.startswith("dashboards/")}
    return {Path(path).stem: text for path, text in found.items()}


def chosen(names: Sequence[str], everything: bool, pack: Mapping[str, str]) -> list[Dashboard]:
    """The dashboards of these names, files and folders, each once; all of the pack for ``everything``.

    InputError for a name that is neither, with the names that there are.
    """
    found: dict[str, Dashboard] = {}
    if everything:
        found = {stem: parse(text, f"dashboards/{stem}.json", stem) for stem, text in pack.items()}
    for name in names:
        for one in _named(name, pack):
            if one.stem in found and found[one.stem] != one:
                raise InputError(f"{name}: two dashboards would be written as {one.stem}.html; draw them one by one")
            found[one.stem] = one
    return list(found.values())


def _named(name: str, pack: Mapping[str, str]) -> list[Dashboard]:
    for stem in (name, f"obs-{name}"):
        if stem in pack:
            return [parse(pack[stem], f"dashboards/{stem}.json", stem)]
    path = Path(name)
    if path.is_dir():
        files = sorted(path.glob("*.json"))
        if not files:
            raise InputError(f"{path}: has no .json file; name a folder with dashboards")
        return [_file(file) for file in files]
    if path.suffix == ".json" or path.exists():
        return [_file(path)]
    raise InputError(f"{name}: no such dashboard; the pack has {', '.join(pack)}; or name a .json file")


def _file(path: Path) -> Dashboard:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path}: is no UTF-8 text; name a dashboard's JSON file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}; name a dashboard's JSON file") from None
    return parse(text, str(path), path.stem)
