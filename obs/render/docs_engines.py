"""Reference pages on engines in Markdown: signals and where they are recorded, flags, and what changes with a version."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from obs.catalog.signals import SIGNALS
from obs.engines import ENGINES
from obs.model.metric import Engine, Histogram, MeanOf, Metric, Missing, Native, Quotient, Source, Summary
from obs.model.rule import Group
from obs.render.docs import NOTE, table


def signals_page(groups: Sequence[Group]) -> str:
    """Every engine-neutral signal: its meaning, unit, the series that rules record of it, and who gives it."""
    recorded: dict[str, list[str]] = {}
    for group in groups:
        for recording in group.recordings:
            names = recorded.setdefault(recording.record.split(":")[1], [])
            if recording.record not in names:
                names.append(recording.record)
    lines = [
        "# Signals\n",
        "A signal is a quantity that means the same for every engine. Rules, panels and the evaluator read the recorded",
        "series, never an engine's own. *Given by* lists the engines that expose it; [the catalogue](catalogue.md) says by",
        "which metric, and why the others cannot. What an engine exposes only with a flag is in [flags](flags.md).\n",
    ]
    lines += table(
        ("signal", "meaning", "unit", "recorded as", "given by"),
        (
            (
                f"`{signal.name}`", f"**{signal.title}**. {signal.help}", signal.unit,
                "<br>".join(f"`{name}`" for name in sorted(recorded.get(signal.name, ()))) or "not with this configuration",
                ", ".join(engine.name for engine in ENGINES if not isinstance(engine.signals[signal.name], Missing)),
            )
            for signal in SIGNALS
        ),
    )
    return NOTE + "\n".join(lines).rstrip() + "\n"


def flags_page() -> str:
    """Per engine: each flag or setting that brings metrics, which ones, and the signals that depend on it."""
    lines = [
        "# Flags per engine\n",
        "What must be switched on for a metric to be there. *Needed for* names the signals that have no other source in",
        "that engine. Metrics that need nothing are not listed: see [the catalogue](catalogue.md).\n",
    ]
    for engine in ENGINES:
        flags: dict[str, list[Metric]] = {}
        for metric in engine.metrics:
            if metric.enabled_by:
                flags.setdefault(metric.enabled_by, []).append(metric)
        lines += [f"## {engine.title} (`{engine.name}`)\n"]
        if not flags:
            lines += ["Everything is on by default.\n"]
            continue
        lines += table(
            ("flag or setting", "brings", "needed for"),
            (
                (
                    flag, "<br>".join(f"`{metric.name}`" for metric in metrics),
                    "<br>".join(f"`{name}`" for name in _depending(engine, {metric.name for metric in metrics})) or "–",
                )
                for flag, metrics in flags.items()
            ),
        )
        lines.append("")
    return NOTE + "\n".join(lines).rstrip() + "\n"


def upgrades_page() -> str:
    """Per engine and version: which metrics come, go and change their name, newest version first."""
    lines = [
        "# Upgrade notes\n",
        "What changes on `/metrics` when an engine is upgraded, as far as it was read or captured (the catalogue's",
        "*evidence* says which). The pack's rules read the old and the new name of a renamed metric, so a rolling upgrade",
        "does not blind them; `obs check` finds an old name in your own rules (`renamed-metric`). Before the upgrade,",
        "`obs record` the new version and run `obs eval --recording` on it: alerts that lost their input are *dead*.\n",
        "## Upgrading obs\n",
        "Alert names, recorded names, dashboard uids, keys of `obs.yaml` and exit codes are public API; the changelog names",
        "every change of them. Before rolling out a new pack, ask what it would have changed:\n",
        "```console",
        "$ obs build --config obs.yaml --out new",
        "$ obs backtest --prometheus URL --since 7d --rules alerts/rules --against new/alerts/rules",
        "```\n",
    ]
    for engine in ENGINES:
        events: dict[str, dict[str, list[str]]] = {}
        for metric in engine.metrics:
            if metric.since:
                events.setdefault(metric.since, {}).setdefault("new", []).append(f"`{metric.name}`")
            if metric.until:
                words = f"`{metric.name}`" + (f" (now `{metric.renamed_to}`)" if metric.renamed_to else "")
                events.setdefault(metric.until, {}).setdefault("last", []).append(words)
            elif metric.renamed_to:
                events.setdefault("a later version", {}).setdefault("last", []).append(
                    f"`{metric.name}` (then `{metric.renamed_to}`)"
                )
        if not events:
            continue
        lines += [f"## {engine.title} (`{engine.name}`)\n", f"Versions: {engine.versions}.\n"]
        lines += table(
            ("version", "first to serve", "last to serve"),
            (
                (version, *("<br>".join(events[version].get(what, ())) or "–" for what in ("new", "last")))
                for version in sorted(events, key=_age, reverse=True)
            ),
        )
        lines.append("")
    return NOTE + "\n".join(lines).rstrip() + "\n"


def _depending(engine: Engine, metrics: set[str]) -> Iterable[str]:
    """Signals all of whose sources read one of ``metrics``."""
    for name, sources in engine.signals.items():
        if not isinstance(sources, Missing) and all(metrics & set(_reads(source)) for source in sources):
            yield name


def _reads(source: Source) -> tuple[str, ...]:
    if isinstance(source, Native | Histogram | Summary):
        return (source.metric,)
    if isinstance(source, Quotient):
        return (source.numerator.metric, source.denominator.metric)
    if isinstance(source, MeanOf):
        return (source.total.metric, source.count.metric)
    raise TypeError(source)


def _age(version: str) -> tuple[int, list[int], str]:
    numbers = [int(word) for word in re.findall(r"\d+", version)]
    return (0 if numbers else 1, numbers, version)
