"""What a server need not evaluate, because the result is known to be the same without it.

Two rewritings, both exact:

- what can only be empty goes: ``a or b`` and ``a unless b`` are ``a`` where none of the metrics of ``b`` exist in the whole
  time that is looked at (they are asked for once);
- a label is copied after the sum, not before it: in ``sum by (model) (label_replace(x, "model", "$1", "model_name", "(.+)"))``
  Prometheus copies the label of every series at every step. Where every series of ``x`` has the label and none has the
  new one, that is ``label_replace(sum by (model_name) (x), …)``: the same groups of the same values. (Prometheus 2.x adds
  what a function gives in an order that changes from query to query; beyond that no bit can differ.)

The parts that an expression is taken apart into are texts of the author's; what cannot be told apart stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

from obs.evaluate import explain
from obs.evaluate.explain import Part, take_apart
from obs.prom import metric_names

Copies = Callable[[str, str, str], bool]
"""``(selector, label, new)``: whether each of its series has the label, on one line, and none the new one, all the time."""

_MAKES_ITS_OWN = frozenset(("absent", "absent_over_time", "vector"))
_ONE_OF_ONE = frozenset(("sum", "min", "max", "group", "avg"))
"""Aggregations that give a single element back as it is (``group``: 1 of a 1)."""
_KEEPS_LABELS = frozenset(
    ("rate", "irate", "increase", "delta", "idelta", "deriv", "changes", "resets", "avg_over_time", "min_over_time",
     "max_over_time", "sum_over_time", "count_over_time", "last_over_time", "present_over_time")
)  # fmt: skip
_WORD = re.compile(r'"([a-zA-Z_][a-zA-Z0-9_]*)"')


def can_give(part: Part, known: Collection[str]) -> bool:
    """Whether a part can have an element, where there are no metrics but the ``known``."""
    if part.kind in {"scalar", "opaque"}:
        return True
    if part.kind == "or":
        return any(can_give(one, known) for one in part.parts)
    if part.kind == "unless":
        return can_give(part.parts[0], known)
    if part.kind == "selector" or (part.kind == "range" and part.bare):
        read = metric_names.selectors(part.text)
        return read is None or all(any(one.may_read(name) for name in known) for one in read)
    return part.op in _MAKES_ITS_OWN or all(can_give(one, known) for one in part.parts)


def simplified(expr: str, known: Collection[str], copies: Copies = lambda selector, label, new: False) -> str:
    """The expression, without what can only be empty where there are no metrics but the ``known``, and with labels copied
    after aggregations where ``copies`` says that it is the same."""
    text = expr.strip()
    try:
        return _simple(text, take_apart(text), known, copies)
    except ValueError:  # a part cannot be told apart
        return text


def _simple(text: str, part: Part, known: Collection[str], copies: Copies) -> str:
    if part.kind in {"or", "unless"}:
        left, right = part.parts
        if not can_give(right, known):
            return _simple(left.text, left, known, copies)
        if part.kind == "or" and not can_give(left, known):
            return _simple(right.text, right, known, copies)
    done = text
    for index, child in enumerate(part.parts):
        if child.parts and not (child.kind == "range" and child.bare):
            new = _simple(child.text, child, known, copies)
            if new != child.text:
                done = explain.swapped(done, index, child.text, new)
    return _copied_after(done, copies) if part.op in _ONE_OF_ONE else done


def _copied_after(text: str, copies: Copies) -> str:
    """An aggregation over ``label_replace``, the other way round where that is the same."""
    import promql_parser

    part = take_apart(text)
    if part.kind != "call" or len(part.parts) != 1 or part.parts[0].op != "label_replace" or len(part.parts[0].parts) != 5:
        return text
    inner, *words = part.parts[0].parts
    new, source = (_WORD.fullmatch(words[place].text) for place in (0, 2))
    selector = _selector(inner)
    node: Any = promql_parser.parse(part.text)
    modifier = getattr(node, "modifier", None)
    if (
        not new or not source or words[1].text != '"$1"' or words[3].text != '"(.+)"' or selector is None
        or modifier is None or not str(modifier.type).endswith(".By") or new[1] not in modifier.labels
        or "instance" in modifier.labels  # as many groups as series, nearly: it saves nothing
        or not copies(selector.bare, source[1], new[1])
    ):  # fmt: skip
        return text
    outer = ", ".join(modifier.labels)
    groups = ", ".join(dict.fromkeys(source[1] if label == new[1] else label for label in modifier.labels))
    asked = f'label_replace({part.op} by ({groups}) ({inner.text}), "{new[1]}", "$1", "{source[1]}", "(.+)")'
    return f"{part.op} by ({outer}) ({asked})"


def _selector(part: Part) -> Part | None:
    """The selector of a part that has its series' labels, one element for each."""
    if part.kind == "call" and part.op in _KEEPS_LABELS:
        ranges = [one for one in part.parts if not one.scalar]
        return ranges[0] if len(ranges) == 1 and ranges[0].kind == "range" and ranges[0].bare else None
    return part if part.kind == "selector" and part.bare else None


def always_has(selector: str, label: str) -> bool:
    """Whether a selector picks only series that have a label."""
    return any(
        name == label and ((op == "!=" and value == "") or (op == "=" and value != ""))
        for name, op, value in explain.matchers(selector)
    )
