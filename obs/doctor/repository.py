"""A model repository on disk: configurations read by protobuf's own text parser, version folders and what is in them.

Nothing is executed or imported: of model.py only the import statements are read.
"""

from __future__ import annotations

import ast
import difflib
import json
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from obs.doctor.facts import DiskModel, DiskVersion, ModelConfig, Repository
from obs.doctor.triton import of_document
from obs.errors import InputError, ToolError

DEFAULT_BACKENDS = Path("/opt/tritonserver/backends")
ENVIRONMENT = "EXECUTION_ENV_PATH"
OWN_FOLDER = "$$TRITON_MODEL_DIRECTORY"
_CONFIG_LIMIT = 4 * 1024 * 1024
#: What Triton itself gives to a Python model's process (numpy must be there in any case).
_GIVEN = frozenset(("triton_python_backend_utils", "c_python_backend_utils", "numpy"))


def look(path: Path, backends: Path | None = None) -> tuple[Repository, list[str]]:
    """The repository, and what of it could not be read.

    Raises InputError when it is no folder or holds no model, ToolError when tritonclient is not installed.
    """
    if not path.is_dir():
        raise InputError(f"{path}: is no folder; give the folder that Triton gets as --model-repository")
    if backends is not None and not backends.is_dir():
        raise InputError(f"{backends}: is no folder; give the folder that Triton gets as --backend-directory")
    try:
        folders = sorted(one for one in path.iterdir() if one.is_dir() and not one.name.startswith("."))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; check its permissions") from None
    if (path / "config.pbtxt").is_file():
        raise InputError(f"{path}: is a model's folder, not a repository; give its parent {path.parent}")
    if not folders:
        raise InputError(f"{path}: holds no model folder; give the folder that Triton gets as --model-repository")
    lacking: list[str] = []
    models = tuple(_model(one, lacking) for one in folders)
    known = backends or (DEFAULT_BACKENDS if DEFAULT_BACKENDS.is_dir() else None)
    libraries: dict[str, bool] = {}
    for model in models if known is not None else ():
        backend = model.config.backend if model.config is not None and not model.config.ensemble else ""
        if backend and known is not None and not libraries.get(backend):
            libraries[backend] = _library(known, Path(model.path), backend)
    return Repository(str(path), models, str(known or ""), libraries), lacking


def parse_config(text: str, place: str, model: str) -> ModelConfig:
    """A config.pbtxt as protobuf reads it. ValueError ``(place with line and column, reason)`` when it cannot.

    Raises ToolError when tritonclient, which carries the schema, is not installed.
    """
    try:
        from google.protobuf import json_format, text_format
        from tritonclient.grpc import model_config_pb2
    except ModuleNotFoundError as error:
        raise ToolError(
            f"a model repository needs the Python package {error.name}; install it with: pip install 'obs-inference[doctor]'"
        ) from None
    message = model_config_pb2.ModelConfig()
    try:
        text_format.Parse(text, message)
    except text_format.ParseError as error:
        line, column = error.GetLine(), error.GetColumn()
        said = str(error)
        prefix = f"{line}:{column} : "
        said = said.removeprefix(prefix) if line is not None else said
        said += _meant(said, model_config_pb2.DESCRIPTOR)
        where = f"{place}:{line}:{column}" if line is not None else place
        raise ValueError(where, " ".join(said.split())) from None
    return of_document(json_format.MessageToDict(message, preserving_proto_field_name=True), place, model, text)


def _meant(said: str, schema: Any) -> str:
    """``; did you mean …?`` for a field or an enum's value that the parser does not know; "" for anything else."""
    found = re.search(r'(?:Message|Enum) type "[\w.]*?(\w+(?:\.\w+)*)" has no (?:field|value) named "?(\w+)"?', said)
    if found is None:
        return ""
    *path, last = found[1].removeprefix(f"{schema.package}.").split(".")
    place = schema
    for name in path:
        place = (place.message_types_by_name if place is schema else place.nested_types_by_name)[name]
    messages = place.message_types_by_name if place is schema else place.nested_types_by_name
    enums = place.enum_types_by_name
    known = [one.name for one in (messages[last].fields if last in messages else enums[last].values)]
    near = [one for one in known if one.endswith(f"_{found[2]}")] or difflib.get_close_matches(found[2].lower(), known, n=1)
    return f" Did you mean {near[0]}?" if near else ""


def _model(folder: Path, lacking: list[str]) -> DiskModel:
    file = folder / "config.pbtxt"
    config: ModelConfig | None = None
    broken: tuple[str, str] | None = None
    if file.is_file():
        try:
            with file.open("rb") as opened:
                raw = opened.read(_CONFIG_LIMIT + 1)
            if len(raw) > _CONFIG_LIMIT:
                raise ValueError(str(file), "it is larger than 4 MiB: no config.pbtxt")
            config = parse_config(raw.decode("utf-8"), str(file), folder.name)
        except OSError as error:
            lacking.append(f"{file}: cannot be read: {error.strerror}")
        except UnicodeDecodeError as error:
            line, column = raw.count(b"\n", 0, error.start) + 1, error.start - raw.rfind(b"\n", 0, error.start)
            broken = (f"{file}:{line}:{column}", "it is no UTF-8 text")
        except ValueError as error:
            hint = " (a template that was not filled in: tools/fill_template.py does it)" if b"${" in raw else ""
            broken = (error.args[0], error.args[1] + hint)
    versions = tuple(sorted(_versions(folder, lacking), key=lambda one: one.number))
    args, args_place, args_broken = _engine_args(folder, versions, config)
    source = _source(folder, versions, config)
    return DiskModel(
        folder.name, str(folder), config, broken, versions, args, args_place, args_broken,
        _imports(folder, versions, source.tree), source.broken, source.completes, _beside(folder), _environment(folder, config),
    )


def _beside(folder: Path) -> tuple[str, ...]:
    """Names in a model's folder that are neither config.pbtxt nor a version; of the first hundred, sorted."""
    try:
        ones = [one for one in folder.iterdir() if one.name != "config.pbtxt" and not one.name.startswith(".")]
    except OSError:
        return ()
    return tuple(sorted(f"{one.name}/" if one.is_dir() else one.name for one in ones if not _is_version(one))[:100])


def _is_version(path: Path) -> bool:
    """Triton passes over a folder whose name is no number, or begins with 0 (model_lifecycle.cc)."""
    return path.is_dir() and path.name.isascii() and path.name.isdigit() and not path.name.startswith("0")


def _versions(folder: Path, lacking: list[str]) -> Iterator[DiskVersion]:
    try:
        children = list(folder.iterdir())
    except OSError as error:
        lacking.append(f"{folder}: cannot be read: {error.strerror}")
        return
    for child in children:
        if not _is_version(child):
            continue
        try:
            names = tuple(sorted(one.name for one in child.iterdir() if not one.name.startswith(".")))
            size = sum(one.stat().st_size for one in child.rglob("*") if one.is_file())
        except OSError as error:
            lacking.append(f"{child}: cannot be read: {error.strerror}")
            continue
        yield DiskVersion(int(child.name), names, size)


def _engine_args(
    folder: Path, versions: tuple[DiskVersion, ...], config: ModelConfig | None
) -> tuple[dict[str, Any] | None, str, tuple[str, str] | None]:
    """vLLM's model.json of the newest version that has one."""
    if config is None or not config.vllm:
        return None, "", None
    for version in reversed(versions):
        file = folder / str(version.number) / "model.json"
        if not file.is_file():
            continue
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            return None, str(file), (f"{file}:{error.lineno}:{error.colno}", error.msg)
        except (OSError, UnicodeDecodeError, RecursionError) as error:
            return None, str(file), (str(file), str(error))
        if not isinstance(found, dict):
            return None, str(file), (str(file), "it is no JSON object")
        return found, str(file), None
    return None, "", None


class _Source(NamedTuple):
    """A Python model's newest model.py; ``tree`` is None where there is none that can be read."""

    tree: ast.Module | None = None
    broken: tuple[str, str] | None = None
    completes: bool = False


def _source(folder: Path, versions: tuple[DiskVersion, ...], config: ModelConfig | None) -> _Source:
    if config is None or config.backend != "python" or not versions:
        return _Source()
    file = folder / str(versions[-1].number) / (config.default_model_filename or "model.py")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a doubtful escape in somebody's model.py is not for our stderr
            tree = ast.parse(file.read_bytes())
    except SyntaxError as error:
        return _Source(broken=(f"{file}:{error.lineno or 1}:{error.offset or 1}", error.msg))
    except (OSError, ValueError, RecursionError, MemoryError):
        return _Source()
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return _Source(tree, completes="auto_complete_config" in names)


def _imports(folder: Path, versions: tuple[DiskVersion, ...], tree: ast.Module | None) -> tuple[str, ...]:
    """The packages that a Python model needs beyond Python, numpy and Triton's own, by its import statements."""
    if tree is None:
        return ()
    place = folder / str(versions[-1].number)
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {one.name.split(".")[0] for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    beside = {one.stem for one in (*place.glob("*"), *folder.glob("*"))}
    return tuple(sorted(found - sys.stdlib_module_names - _GIVEN - beside))


def _environment(folder: Path, config: ModelConfig | None) -> tuple[str, bool] | None:
    given = config.parameters.get(ENVIRONMENT, "") if config is not None else ""
    if not given:
        return None
    path = given.replace(OWN_FOLDER, str(folder))
    return path, Path(path).exists()


def _library(backends: Path, model: Path, backend: str) -> bool:
    """Whether a backend is there: its library, or model.py for one that is written in Python. Beside the model too."""
    library = f"libtriton_{backend}.so"
    places = (backends / backend, model, *(one for one in model.glob("[1-9]*") if one.is_dir()))
    return any((place / library).is_file() for place in places) or (backends / backend / "model.py").is_file()
