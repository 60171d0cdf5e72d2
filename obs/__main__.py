"""``python -m obs``."""

from obs.cli.main import run

run()
