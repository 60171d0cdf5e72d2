"""A rule group in parts, where a reader takes only small ones, such that every rule still sees what it saw.

The rules of a group are evaluated one after the other: a rule that reads what another of its group records must stay
behind it in the same group. Rules that share nothing may part; groups run side by side anyway.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Rule = Mapping[str, Any]
_ANY = re.compile(r"\bALERTS(_FOR_STATE)?\b|__name__")


def parts(group: Mapping[str, Any], weigh: Callable[[Rule], int], room: int) -> tuple[Mapping[str, Any], ...]:
    """The group itself if the weights of its rules add up to ``room`` at most; else groups ``name``, ``name-2`` …, each of
    which does so unless its rules belong together. Rules keep their order."""
    rules = group["rules"]
    weights = [weigh(rule) for rule in rules]
    if sum(weights) <= room:
        return (group,)
    found: list[list[int]] = []
    left = -1
    for family in families(rules):
        weight = sum(weights[place] for place in family)
        if weight <= left:
            found[-1] += family
        else:
            found.append(list(family))
            left = room
        left -= weight
    return tuple(
        {**group, "name": group["name"] if number == 1 else f"{group['name']}-{number}",
         "rules": [rules[place] for place in sorted(part)]}
        for number, part in enumerate(found, start=1)
    )


def families(rules: Sequence[Rule]) -> tuple[tuple[int, ...], ...]:
    """Places of the rules that belong together, for one reads what the other records; in the order of their first.

    A rule that reads ALERTS, or series by a pattern of their name, may read any of them: then all belong together.
    """
    if any(_ANY.search(rule["expr"]) for rule in rules):
        return (tuple(range(len(rules))),)
    head = list(range(len(rules)))

    def root(place: int) -> int:
        while head[place] != place:
            place = head[place]
        return place

    recorded: dict[str, list[int]] = {}
    for place, rule in enumerate(rules):
        if "record" in rule:
            recorded.setdefault(rule["record"], []).append(place)
    for name, places in recorded.items():
        reads = re.compile(rf"(?<![\w:]){re.escape(name)}(?![\w:])")
        readers = [place for place, rule in enumerate(rules) if reads.search(rule["expr"])]
        # Several rules may record one name: for a reader it is one series.
        for reader in readers:
            for place in places:
                low, high = sorted((root(reader), root(place)))
                head[high] = low
    found: dict[int, list[int]] = {}
    for place in range(len(rules)):
        found.setdefault(root(place), []).append(place)
    return tuple(tuple(places) for _, places in sorted(found.items()))
