"""Reads a YAML file with the line of every mapping, so that a finding has a place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from obs.errors import InputError

LINE = "__line__"  # the 1-based line of a mapping, kept under a key that no Prometheus file uses


#: libyaml's parser where PyYAML was built with it: ten times as fast, the same documents.
_Base: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[valid-type,misc]
    """A safe loader that notes where each mapping starts."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    loader.flatten_mapping(node)
    result: dict[Any, Any] = loader.construct_mapping(node, deep=True)
    result[LINE] = node.start_mark.line + 1
    return result


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def load(path: Path) -> Any:
    """The file's document (None when it is empty); InputError when it cannot be read or is no YAML."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}; check the path") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    try:
        return yaml.load(text, Loader=_Loader)  # a SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        what = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise InputError(f"{where}: is not valid YAML: {what}; mend the syntax") from error


def items(value: Any) -> list[dict[str, Any]]:
    """The mappings of a YAML list; [] when the value is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def plain(mapping: Any) -> dict[str, str]:
    """A YAML mapping as strings, without the line note; {} when the value is no mapping."""
    if not isinstance(mapping, dict):
        return {}
    return {str(key): "" if value is None else str(value) for key, value in mapping.items() if key != LINE}
