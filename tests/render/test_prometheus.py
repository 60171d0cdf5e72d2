"""Rule files as YAML: the same bytes whether libyaml is installed or not."""

from __future__ import annotations

import pytest
import yaml

from obs.alerts.registry import all_groups
from obs.config import load_config
from obs.render import prometheus

TEXTS = ("plain", "two\nlines\n", " x", "true", "{{ $value }}: # é – ×", "\u2028", "a\x85b", "siren \U0001f6a8", "\\L")


def _slow(data: object) -> str:
    """The text as PyYAML's own emitter writes it."""
    return yaml.dump(data, Dumper=prometheus._Dumper, sort_keys=False, allow_unicode=True, width=4096)


@pytest.mark.parametrize("text", TEXTS)
def test_both_emitters_write_the_same_text(text: str) -> None:
    data = {"groups": [{"name": text, "rules": [{"expr": text, "labels": {"team": text}}]}]}
    assert prometheus.dump(data) == _slow(data)


def test_the_pack_is_the_same_without_libyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config()
    groups = all_groups(config)
    fast = prometheus.rule_files(groups, config)
    monkeypatch.setattr(prometheus, "_FastDumper", prometheus._Dumper)
    assert prometheus.rule_files(groups, config) == fast
