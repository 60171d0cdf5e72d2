"""What a server need not evaluate, because the result is known to be the same without it.

Rewritings, all exact:

- what can only be empty goes: ``a or b`` and ``a unless b`` are ``a`` where none of the metrics of ``b`` exist in the whole
  time that is looked at (they are asked for once);
- a label is copied after the sum, not before it: in ``sum by (model) (label_replace(x, "model", "$1", "model_name", "(.+)"))``
  Prometheus copies the label of every series at every step. Where every series of ``x`` has the label and none has the
  new one, that is ``label_replace(sum by (model_name) (x), …)``: the same groups of the same values. (Prometheus 2.x adds
  what a function gives in an order that changes from query to query; beyond that no bit can differ.)

- ``group by (l) (a) or group by (l) (b)`` is ``group by (l) ({__name__=~"a|b"})``: which labels there are, each once;
- the label of a whole result is copied by us, once per series (``put``): see Asked. Where no two series fall into one group
  in all that time, the aggregation around them only takes labels away, and the series are asked for as they are.

The parts that an expression is taken apart into are texts of the author's; what cannot be told apart stays as it is.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from obs.evaluate import explain
from obs.evaluate.explain import Part, take_apart
from obs.prom import metric_names
from obs.prom.packed import Packed
from obs.prom.remote_write import Labels, make_labels

Copies = Callable[[str, str, str], bool]
"""``(selector, label, new)``: whether each of its series has the label, on one line, and none the new one, all the time."""

Apart = Callable[[str, Collection[str]], bool]
"""``(selector, labels)``: whether no two of its series agree in all of these labels, all the time."""

_MAKES_ITS_OWN = frozenset(("absent", "absent_over_time", "vector"))
_ONE_OF_ONE = frozenset(("sum", "min", "max", "group", "avg"))
"""Aggregations that give a single element back as it is (``group``: 1 of a 1)."""
_KEEPS_LABELS = frozenset(
    ("rate", "irate", "increase", "delta", "idelta", "deriv", "changes", "resets", "avg_over_time", "min_over_time",
     "max_over_time", "sum_over_time", "count_over_time", "last_over_time", "present_over_time")
)  # fmt: skip
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_WORD = re.compile(r'"([a-zA-Z_][a-zA-Z0-9_]*)"')


@dataclass(frozen=True)
class Asked:
    """What to ask for an expression, and what its series' labels become.

    ``text``: the question; ``plain``: the one that needs nothing to be done. ``labels``: (label of the result, label of what
    is asked), the only ones kept; None: all stay as they are. ``ones``: every value is 1, whatever is answered.
    """

    text: str
    labels: tuple[tuple[str, str], ...] | None = None
    ones: bool = False
    plain: str = ""

    def put(self, series: Sequence[Packed]) -> list[Packed] | None:
        """The series with the labels that they come to have; None when two come to have the same (then ``text`` is no
        way to ask for it)."""
        if self.labels is None:
            return list(series)
        found: dict[Labels, Packed] = {}
        for one in series:
            had = dict(one.labels)
            labels = make_labels((new, had.get(old, "")) for new, old in self.labels)
            if labels in found:
                return None
            values = array("d", [1.0]) * sum(end - begin for begin, end in one.runs) if self.ones else one.values
            found[labels] = Packed(labels, one.runs, values)
        return list(found.values())


def asked(expr: str, known: Collection[str], copies: Copies, apart: Apart) -> Asked:
    """How to ask for an expression at the top of a question: ``simplified``, and what can be done to the answer's labels is
    not done by the server at each step. ``copies`` and ``apart`` say what is the same."""
    import promql_parser

    text = simplified(expr, known)
    plain = Asked(simplified(expr, known, copies))
    part = take_apart(text)
    if part.kind != "call" or part.op not in _ONE_OF_ONE or len(part.parts) != 1:
        return plain
    modifier = getattr(promql_parser.parse(part.text), "modifier", None)
    if modifier is None or not str(modifier.type).endswith(".By"):
        return plain
    inner, copied = part.parts[0], dict[str, str]()
    while (copy := _copy(inner)) is not None:
        new, source, inner = copy
        if new in copied or new in copied.values() or source in copied:
            return plain
        copied[new] = source
    selector = _selector(inner)
    if selector is None or not all(copies(selector.bare, source, new) for new, source in copied.items()):
        return plain
    labels = tuple((label, copied.get(label, label)) for label in modifier.labels)
    groups = list(dict.fromkeys(old for _, old in labels))
    if selector.name and "instance" in groups and not selector.shifted and apart(selector.bare, groups):
        return Asked(inner.text, labels, part.op == "group", plain.text)
    if copied:
        return Asked(f"{part.op} by ({', '.join(groups)}) ({inner.text})", labels, plain=plain.text)
    return plain


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
        grouped = _one_group(part) if part.kind == "or" and not part.modifier else None
        if grouped is not None:
            return grouped
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
    copy = _copy(part.parts[0]) if part.kind == "call" and len(part.parts) == 1 else None
    if copy is None:
        return text
    new, source, inner = copy
    selector = _selector(inner)
    node: Any = promql_parser.parse(part.text)
    modifier = getattr(node, "modifier", None)
    if (
        selector is None or modifier is None or not str(modifier.type).endswith(".By") or new not in modifier.labels
        or "instance" in modifier.labels  # as many groups as series, nearly: it saves nothing
        or not copies(selector.bare, source, new)
    ):  # fmt: skip
        return text
    outer = ", ".join(modifier.labels)
    groups = ", ".join(dict.fromkeys(source if label == new else label for label in modifier.labels))
    within = f'label_replace({part.op} by ({groups}) ({inner.text}), "{new}", "$1", "{source}", "(.+)")'
    return f"{part.op} by ({outer}) ({within})"


def _copy(part: Part) -> tuple[str, str, Part] | None:
    """Of a ``label_replace`` that copies a label whole: the new label, the old one, and what it is done to."""
    if part.op != "label_replace" or len(part.parts) != 5:
        return None
    inner, *words = part.parts
    new, source = (_WORD.fullmatch(words[place].text) for place in (0, 2))
    if not new or not source or words[1].text != '"$1"' or words[3].text != '"(.+)"':
        return None
    return new[1], source[1], inner


def _one_group(part: Part) -> str | None:
    """``group by (l) (a) or group by (l) (b)``, with names only, as one group of all; None for anything else."""
    arms = [take_apart(one.text) for one in _arms(part)]
    heads = set()
    names = []
    for one in arms:
        inner = one.parts[0] if one.kind == "call" and one.op == "group" and len(one.parts) == 1 else None
        if inner is None or not _NAME.fullmatch(inner.text):
            return None
        names.append(inner.text)
        heads.add(re.sub(r"\s+", " ", one.text[: one.text.rindex("(")]).strip())
    if len(heads) != 1 or not (head := heads.pop()).startswith("group by") or "__name__" in head:
        return None
    return f'{head} ({{__name__=~"{"|".join(dict.fromkeys(names))}"}})'


def _arms(part: Part) -> list[Part]:
    if part.kind != "or" or part.modifier:
        return [part]
    return [one for side in part.parts for one in _arms(side)]


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


def without(selector: str, label: str) -> str:
    """A selector (with nothing behind it) of those of its series that lack a label."""
    head, brace, inner = selector.partition("{")
    inner = inner.rstrip()[:-1].rstrip().rstrip(",") if brace else ""
    return f"{head}{{{inner}{',' if inner else ''}{label}=\"\"}}"
