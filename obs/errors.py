"""One tree of exceptions, and the exit code that each means.

    ObsError                 2
    ├── ConfigError          2   obs.yaml is wrong: file, key path, reason, mend
    ├── InputError           2   a file or argument that the user gave is unreadable or garbled
    ├── OutputError          3   a result cannot be written; what stood there before is intact
    ├── ToolError            3   promtool, Prometheus or Triton is missing or misbehaves
    ├── ServerError          3   a server that we were told to talk to cannot be reached or answers nonsense
    └── DeclarationError     3   the project's own data has a hole: a name that nothing declares

Exit codes of every command: 0 all well; 1 findings (a check, a test or a comparison failed);
2 the input is wrong; 3 the work could not be done ("could not check" is never "ok").
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_FINDINGS = 1
EXIT_BAD_INPUT = 2
EXIT_COULD_NOT = 3


class ObsError(Exception):
    """An error with one clear line for the user; ``str(error)`` is that line."""

    exit_code = EXIT_BAD_INPUT


class ConfigError(ObsError):
    """``obs.yaml`` is wrong."""


class InputError(ObsError):
    """A file or argument given by the user cannot be used."""


class OutputError(ObsError):
    """A result cannot be written."""

    exit_code = EXIT_COULD_NOT


class ToolError(ObsError):
    """An external program is missing or failed in a way that says nothing about its input."""

    exit_code = EXIT_COULD_NOT


class ServerError(ObsError):
    """A server cannot be reached or gave an unusable answer."""

    exit_code = EXIT_COULD_NOT


class DeclarationError(ObsError, KeyError):
    """The project's own data has a hole, as on the way of adding to it: the line names the file that is to declare it."""

    exit_code = EXIT_COULD_NOT

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError shows its quoted form
