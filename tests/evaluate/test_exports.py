from __future__ import annotations

import subprocess
import sys

import pytest

from obs import evaluate


def test_every_exported_name_is_there_and_is_no_module() -> None:
    for name in evaluate.__all__:
        assert type(getattr(evaluate, name)).__name__ != "module", name
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = evaluate.nothing


def test_names_stay_what_they_are_when_their_modules_are_loaded() -> None:
    """A module of the package takes its name in the package once it is imported: no export may have that name."""
    code = (
        "from obs import evaluate; import pkgutil; "
        "names = {one.name for one in pkgutil.iter_modules(evaluate.__path__)}; "
        "print(sorted(names & set(evaluate.__all__)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_importing_the_package_loads_nothing() -> None:
    code = "import sys, obs.evaluate; print([name for name in sys.modules if name.startswith('obs.evaluate.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
