"""Results as text tables and as one HTML page; no simulation here."""

from __future__ import annotations

import html
import io
import math
from collections.abc import Sequence
from typing import Any

from obs.errors import ToolError
from obs.simulate import compare, stats
from obs.simulate.compare import GOAL, ORACLE, STATIC, Recommendation, Row, halves, highest_regime_targets
from obs.simulate.fleet import Result, Settings

UNKNOWN = "–"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns of text: the first two to the left, the others to the right."""
    widths = [max(len(row[index]) for row in [header, *rows]) for index in range(len(header))]
    lines = []
    for row in [header, *rows]:
        cells = [cell.ljust(width) if index < 2 else cell.rjust(width)
                 for index, (cell, width) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return lines


def _share(found: stats.Mean | None) -> str:
    if found is None:
        return UNKNOWN
    half = f" ±{100 * found.half:.1f}" if found.half is not None else ""
    return f"{100 * found.value:.1f}{half}"


def _number(found: stats.Mean | None, digits: int = 1) -> str:
    if found is None:
        return UNKNOWN
    half = f" ±{found.half:.{digits}f}" if found.half is not None else ""
    return f"{found.value:.{digits}f}{half}"


def _enough(row: Row) -> str:
    if row.policy == STATIC:
        return UNKNOWN
    if row.never:
        return f"never ({row.never}/{len(row.outcomes)})"
    found = row.mean("enough")
    return UNKNOWN if found is None else f"{_number(found, 0)} s"


COMPARISON_HEADER = ("policy", "signal and target", "SLO %", "TTFT %", "ITL %", "replica-h", "preempted", "flaps",
                     "enough after", "ahead by")


def comparison_rows(rows: Sequence[Row]) -> list[list[str]]:
    """The cells of a comparison, one list a row."""
    found = []
    for row in rows:
        lead = row.mean("lead")
        found.append([
            row.policy, row.title, _share(row.mean("attainment")), _share(row.mean("ttft")), _share(row.mean("itl")),
            _number(row.mean("replica_hours")), _number(row.mean("preemptions"), 0), _number(row.mean("flaps")),
            _enough(row), UNKNOWN if lead is None else f"{lead.value:+.0f} s",
        ])
    return found


def comparison(rows: Sequence[Row], titles: dict[str, str], seeds: Sequence[int]) -> list[str]:
    """The comparison as text, a table for each scenario."""
    lines: list[str] = []
    for name in dict.fromkeys(row.scenario for row in rows):
        mine = [row for row in rows if row.scenario == name]
        lines += [f"{name}: {titles.get(name, name)}", *table(COMPARISON_HEADER, comparison_rows(mine)), ""]
    lines += legend(len(seeds))
    return lines


def legend(seeds: int) -> list[str]:
    """What the columns mean."""
    return [
        f"{seeds} seeds; ± is the half width of a 95 % confidence interval (Student's t over the seeds).",
        "SLO: requests with both objectives met; failed ones count as not met. replica-h: pods held, loading and draining too.",
        "flaps: changes of direction within 10 minutes. enough after: from a burst's begin until enough replicas are ready.",
        "ahead by: from the first scale-up to the 20th violation of a burst; minus is too late.",
    ]


def sweep(rows: Sequence[Row]) -> list[str]:
    """A sweep as text: a line for each target, for each scenario SLO % and replica-hours."""
    names = list(dict.fromkeys(row.scenario for row in rows))
    lines: list[str] = []
    for policy in dict.fromkeys(row.policy for row in rows):
        mine = [row for row in rows if row.policy == policy]
        targets = list(dict.fromkeys(row.target for row in mine))
        cells = []
        for target in targets:
            line = [policy, f"{target:g}"]
            worst = math.inf
            hours = 0.0
            for name in names:
                row = next(one for one in mine if one.scenario == name and one.target == target)
                share, cost = row.mean("attainment"), row.mean("replica_hours")
                assert share is not None
                assert cost is not None
                worst, hours = min(worst, share.value), hours + cost.value
                line.append(f"{100 * share.value:.1f} / {cost.value:.1f}")
            cells.append([*line, f"{100 * worst:.1f}", f"{hours:.1f}"])
        lines += table(("policy", "target", *names, "worst", "hours"), cells)
        best = highest_regime_targets(rows, policy)
        each = ", ".join(f"{name} {UNKNOWN if value is None else f'{value:g}'}" for name, value in best.items())
        lines += [f"highest target with {GOAL:.0%} in each: {each}", ""]
    return lines


def frontier(rows: Sequence[Row], own: Sequence[Row]) -> list[str]:
    """For each swept policy the replica-hours at which it attains what ``own`` does."""
    found = compare.frontier(rows, own)
    names = [row.scenario for row in own]
    hours = {one.scenario: f"{100 * one.attainment:.1f} / {one.own:.1f}" for one in found}
    cells = [[own[0].policy, f"{own[0].target:g}", *(hours[name] for name in names)]]
    for policy in dict.fromkeys(one.policy for one in found):
        mine = {one.scenario: one for one in found if one.policy == policy}
        cells.append([policy, "any", *(_reached(mine[name]) for name in names)])
    return [
        *table(("policy", "target", *names), cells),
        f"SLO % / replica-hours of {own[0].policy}; of the others the replica-hours at the same SLO %, in a straight line",
        "between two targets of the sweep, and how many times as much that is; or the most SLO % that any target gives.",
    ]


def _reached(one: compare.Frontier) -> str:
    if one.cost is None:
        return f"never ({100 * one.best:.1f})"
    return f"{one.cost:.1f} ({one.cost / one.own:.2f} x)"


def recommendation(found: Recommendation, names: Sequence[str], seeds: Sequence[int]) -> list[str]:
    """The trials of a recommendation, a line for each target; what it comes to in the last line."""
    cells = []
    for target in dict.fromkeys(trial.target for trial in found.trials):
        by_name = {trial.scenario: trial for trial in found.trials if trial.target == target}
        line = [found.policy, f"{target:g}"]
        for name in names:
            if name not in by_name:
                line.append("not run")
                continue
            rows = by_name[name].halves
            shares = ", ".join(_share_only(row) for row in rows)
            hours = stats.mean([one.replica_hours for row in rows for one in row.outcomes])
            line.append(f"{shares} / {hours.value:.1f}")
        cells.append([*line, "yes" if target == found.target else "no"])
    parts = " and ".join(", ".join(str(seed) for seed in part) for part in halves(seeds))
    return [
        *table(("policy", "target", *names, "holds"), cells),
        f"SLO % of the seeds {parts} / replica-hours of those that were run.",
        f"A target is given up at its first miss of {GOAL:.0%}.",
        "",
        f"{found.policy}: target {found.target:g}, the highest with {GOAL:.0%} in every scenario, in each half of the seeds"
        if found.target is not None else f"{found.policy}: no target reaches {GOAL:.0%} in every scenario",
    ]


def _share_only(row: Row) -> str:
    found = row.mean("attainment")
    return UNKNOWN if found is None else f"{100 * found.value:.1f}"


def single(settings: Settings, result: Result, title: str) -> list[str]:
    """One run as text: its figures, and its replicas over time."""
    requests = max(1, result.requests)
    lines = [
        title,
        f"requests       {result.requests:,}, of them failed {result.failed:,}",
        f"SLO            {result.attainment:.1%} (TTFT ≤ {settings.slo.ttft:g} s {result.ttft_good / requests:.1%}, "
        f"mean ITL ≤ {settings.slo.itl:g} s {result.itl_good / requests:.1%})",
    ]
    if result.ttfts:
        quantiles = ", ".join(f"p{100 * share:.0f} {stats.quantile(result.ttfts, share):.2f} s" for share in (0.5, 0.9, 0.99))
        lines.append(f"TTFT           {quantiles}")
        quantiles = ", ".join(f"p{100 * share:.0f} {1000 * stats.quantile(result.itls, share):.0f} ms"
                              for share in (0.5, 0.9, 0.99))
        lines.append(f"mean ITL       {quantiles}")
    lines += [
        f"replica-hours  {result.replica_hours:.2f}, peak {result.peak} replicas",
        f"scaling        {result.scale_ups} up, {result.scale_downs} down, {result.flaps} flaps, "
        f"{result.blind_scale_ins} replicas taken while data was missing",
        f"preemptions    {result.preemptions:,}",
        "",
        *_strip(settings, result),
    ]
    return lines


def _strip(settings: Settings, result: Result, columns: int = 60) -> list[str]:
    """Replicas over time: the most that were wanted, the fewest that were ready, in each slice."""
    width = settings.seconds / columns
    late = [0] * columns
    for at in result.violations:
        late[min(columns - 1, int(at / width))] += 1
    wanted, ready = [], []
    for index in range(columns):
        start, end = index * width, (index + 1) * width
        inside = [one for one in result.replicas if start <= one[0] < end]
        before = [one for one in result.replicas if one[0] <= start][-1:]
        seen = before + inside
        wanted.append(max(one[1] for one in seen))
        ready.append(min(one[2] for one in seen))
    most = max(late) or 1
    marks = "".join("·" if not count else "░" if count < most / 10 else "▒" if count < most / 2 else "█" for count in late)
    return [
        f"each column is {width:.0f} s; · no request late, █ most late",
        "wanted  " + "".join(_digit(count) for count in wanted),
        "ready   " + "".join(_digit(count) for count in ready),
        "late    " + marks,
    ]


def _digit(count: int) -> str:
    return "0123456789abcdefghijklmnopqrstuvwxyz"[count] if count < 36 else "+"


# --- HTML -------------------------------------------------------------------------------------------

_STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
table{border-collapse:collapse;margin:.5rem 0 1.5rem}th,td{padding:.2rem .7rem;text-align:right;border-bottom:1px solid #ddd}
th:nth-child(-n+2),td:nth-child(-n+2){text-align:left}svg{max-width:100%;height:auto}"""


def page(rows: Sequence[Row], titles: dict[str, str], seeds: Sequence[int], command: str) -> tuple[str, bool]:
    """The comparison as one self-contained HTML page, and whether it has its charts (they take matplotlib)."""
    charts = _charts(rows)
    parts = []
    for name in dict.fromkeys(row.scenario for row in rows):
        parts.append(f"<h2>{html.escape(name)}: {html.escape(titles.get(name, name))}</h2>")
        if charts is not None:
            parts.append(charts[name])
        parts.append(_html_table(COMPARISON_HEADER, comparison_rows([row for row in rows if row.scenario == name])))
    return _document("comparison", "Autoscaling signals compared", command, legend(len(seeds)), parts, charts is not None)


def sweep_page(rows: Sequence[Row], own: Sequence[Row], titles: dict[str, str], seeds: Sequence[int], command: str,
               ) -> tuple[str, bool]:
    """A sweep as one self-contained HTML page: for each scenario the frontier of each policy, ``own`` marked in it."""
    charts = _frontiers(rows, own)
    parts = []
    for name in dict.fromkeys(row.scenario for row in rows):
        parts.append(f"<h2>{html.escape(name)}: {html.escape(titles.get(name, name))}</h2>")
        if charts is not None:
            parts.append(charts[name])
    lines = [*sweep(rows), *(frontier(rows, own) if own else [])]
    parts.append(f"<pre>{html.escape(chr(10).join(lines))}</pre>")
    said = [f"{len(seeds)} seeds. Each point of a line is one target of the policy; up and to the left is better."]
    return _document("sweep", "Attainment and cost", command, said, parts, charts is not None)


def _html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return "\n".join(["<table>" + line(header, "th"), *(line(cells, "td") for cells in rows), "</table>"])


def _document(what: str, heading: str, command: str, said: Sequence[str], parts: Sequence[str], charts: bool,
              ) -> tuple[str, bool]:
    lines = [
        "<!doctype html>", f'<html lang="en"><head><meta charset="utf-8"><title>obs simulate: {what}</title>',
        f"<style>{_STYLE}</style></head><body>", f"<h1>{heading}</h1>", f"<p>Made by <code>{html.escape(command)}</code>.</p>",
        *(f"<p>{html.escape(line)}</p>" for line in said), *parts,
    ]
    if not charts:
        lines.append("<p>No charts: matplotlib is not installed.</p>")
    return "\n".join([*lines, "</body></html>"]) + "\n", charts


def _charts(rows: Sequence[Row]) -> dict[str, str] | None:
    """For each scenario an SVG: SLO attainment over replica-hours, and the replicas of the first seed over time."""
    drawing = _drawing()
    if drawing is None:
        return None
    found = {}
    for name in dict.fromkeys(row.scenario for row in rows):
        figure = drawing(figsize=(11, 3.8))
        left, right = figure.subplots(1, 2)
        figure.subplots_adjust(left=0.06, right=0.99, top=0.97, bottom=0.14, wspace=0.15)
        for index, row in enumerate(one for one in rows if one.scenario == name):
            _points(left, right, row, f"C{index % 10}")
        _axes(left)
        right.set(xlabel="minutes", ylabel="ready replicas, first seed")
        found[name] = _svg(figure)
    return found


def _frontiers(rows: Sequence[Row], own: Sequence[Row]) -> dict[str, str] | None:
    """For each scenario an SVG: SLO attainment over replica-hours, a line for each policy."""
    drawing = _drawing()
    if drawing is None:
        return None
    found = {}
    for name in dict.fromkeys(row.scenario for row in rows):
        figure = drawing(figsize=(7, 3.8))
        axes = figure.subplots()
        figure.subplots_adjust(left=0.12, right=0.99, top=0.97, bottom=0.14)
        for index, policy in enumerate(dict.fromkeys(row.policy for row in rows)):
            points = [_place(row) for row in rows if row.scenario == name and row.policy == policy]  # in order of targets
            axes.plot(*zip(*points, strict=True), ".-", color=f"C{index % 10}", label=policy, linewidth=1.1)
        for row in own:
            if row.scenario == name:
                axes.plot(*_place(row), "k*", markersize=11, label=f"{row.policy} {row.target:g}")
        _axes(axes)
        found[name] = _svg(figure)
    return found


def _drawing() -> Any:
    """matplotlib's Figure, or None where it is not installed."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        return None
    return Figure


def _axes(axes: Any) -> None:
    axes.axhline(GOAL, color="#999", linewidth=0.8, linestyle="--")
    axes.set(xlabel="replica-hours", ylabel="SLO attainment")
    axes.legend(fontsize=7)


def _svg(figure: Any) -> str:
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": "obs", "svg.fonttype": "none"}):  # the same bytes in every run
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg"):]


def _place(row: Row) -> tuple[float, float]:
    share, cost = row.mean("attainment"), row.mean("replica_hours")
    if share is None or cost is None:
        raise ToolError(f"{row.scenario}: {row.policy} has no figures to draw")
    return cost.value, share.value


def _points(left: Any, right: Any, row: Row, colour: str) -> None:
    share, cost = row.mean("attainment"), row.mean("replica_hours")
    if share is None or cost is None:
        raise ToolError(f"{row.scenario}: {row.policy} has no figures to draw")
    marker = "D" if row.policy in (STATIC, ORACLE) else "o"
    left.errorbar(cost.value, share.value, xerr=cost.half, yerr=share.half, fmt=marker, color=colour, label=row.policy,
                  capsize=2)
    path = list({at: (at, wanted, ready) for at, wanted, ready in row.outcomes[0].path}.values())  # the last of a moment
    if row.policy not in (STATIC, ORACLE):
        right.step([at / 60 for at, _, _ in path], [ready for _, _, ready in path], where="post", color=colour,
                   linewidth=1.1)
