"""The pack as files: rendered whole in memory, compared, and written at once or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from obs.config import Config, nearest
from obs.errors import InputError, OutputError
from obs.model.rule import Group

if TYPE_CHECKING:
    from obs.render.formats import Format

@dataclass(frozen=True)
class Drift:
    """One file that differs from a fresh build: ``missing``, ``changed`` or ``orphan``."""

    path: str
    kind: str


def formats(names: Sequence[str] | None = None) -> tuple[Format, ...]:
    """The formats by name, each once; ``None``: those of the repository itself. ``InputError`` for an unknown name."""
    from obs.render import formats as known

    chosen = known.DEFAULT if names is None else tuple(known.BY_NAME) if "all" in names else tuple(names)
    for name in chosen:
        if name not in known.BY_NAME:
            raise InputError(f"--format {name}: no such format; {nearest(name, (*known.BY_NAME, 'all'))}")
    return tuple(one for one in known.FORMATS if one.name in chosen)


def render_all(
    config: Config, groups: tuple[Group, ...] | None = None, chosen: Sequence[str] | None = None
) -> dict[str, str]:
    """Path (relative, with ``/``) → text of every file of the ``chosen`` formats (see ``formats``). The same input gives
    the same bytes."""
    from obs.alerts.registry import all_groups
    from obs.dashboards.registry import all_dashboards
    from obs.render.pack import Pack

    pack = Pack(config, all_groups(config) if groups is None else groups, all_dashboards(config))
    files = {path: text for one in formats(chosen) for path, text in one.paths(pack).items()}
    return dict(sorted(files.items()))


def compare(root: Path, files: Mapping[str, str], chosen: Sequence[str] | None = None) -> list[Drift]:
    """How the tree under ``root`` differs from ``files``, which are those of the ``chosen`` formats, by path."""
    found = []
    for path, text in files.items():
        try:
            same = (root / path).read_text(encoding="utf-8") == text
        except FileNotFoundError:
            found.append(Drift(path, "missing"))
            continue
        except (OSError, UnicodeDecodeError):
            same = False
        if not same:
            found.append(Drift(path, "changed"))
    found += [Drift(path, "orphan") for path in orphans(root, files, chosen)]
    return sorted(found, key=lambda drift: drift.path)


def orphans(root: Path, files: Mapping[str, str], chosen: Sequence[str] | None = None) -> list[str]:
    """Generated files in the folders of the ``chosen`` formats that a fresh build does not write."""
    found = []
    for one in formats(chosen):
        for path in sorted(path for form in one.owned for path in (root / one.folder).glob(form) if path.is_file()):
            name = path.relative_to(root).as_posix()
            if name not in files:
                text = path.read_text(encoding="utf-8", errors="replace")
                if any(mark in text for mark in one.marks):
                    found.append(name)
    return found


def write(root: Path, files: Mapping[str, str], chosen: Sequence[str] | None = None) -> list[Drift]:
    """Bring the tree under ``root`` to ``files`` of the ``chosen`` formats; returns what was changed.

    Every new text is on disk under a temporary name before the first file is replaced, so that a full disk or a
    folder without write permission leaves the previous output whole. Raises ``OutputError``.
    """
    drift = compare(root, files, chosen)
    staged: list[tuple[str, Path]] = []
    path = root
    try:
        for change in drift:
            if change.kind == "orphan":
                continue
            path = root / change.path
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                raise IsADirectoryError(21, "Is a directory", str(path))
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            staged.append((name, path))
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(files[change.path])
            os.chmod(name, 0o644)
        while staged:
            name, path = staged[-1]
            os.replace(name, path)
            staged.pop()
        for change in drift:
            if change.kind == "orphan":
                path = root / change.path
                path.unlink()
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputError(
            f"{path}: cannot be written: {reason}; nothing half-written was left; "
            "give a writable folder with --out"
        ) from error
    finally:
        for name, _ in staged:
            Path(name).unlink(missing_ok=True)
    return drift
