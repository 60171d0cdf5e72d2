"""A finding that is meant can be silenced, with a reason, where it stands.

The comment `# obs:ignore ID reason` on a line of a rule, or right above it, silences the check ID for that rule; in a
manifest, anywhere in an object's document, for that object. The reason is mandatory: the next reader needs it. A comment
with an ID that no check has, or without a reason, silences nothing and is itself a finding; one that silences nothing is
mentioned.

Example:
    # obs:ignore threshold-bucket our servers run with --custom-histogram-buckets 0.2,2,4
    - alert: SlowFirstToken

The pack itself has no exemptions.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

from obs.checks.rulefiles import Ignore, Rule, RuleFile
from obs.checks.world import World
from obs.model.problem import Problem

ID = "suppression"


def apply(
    world: World, problems: Iterable[Problem], ids: Collection[str], ran: Collection[str]
) -> tuple[list[Problem], int]:
    """The problems that are left, with those of the comments themselves; and how many were silenced.

    ``ids`` are all checks there are, ``ran`` those that ran.
    """
    kept = list(problems)
    silenced = 0
    found: list[Problem] = []
    for file in world.rule_files:
        for ignore in file.ignores:
            wrong = trouble(file.path, ignore, ids)
            if wrong is not None:
                found.append(wrong)
                continue
            rule = _rule_at(file, ignore.line)
            if rule is None:
                continue
            hit = [p for p in kept if p.path == file.path and p.check == ignore.check and _inside(file, rule, p)]
            silenced += len(hit)
            kept = [problem for problem in kept if problem not in hit]
            if not hit and ignore.check in ran:
                found.append(
                    Problem(
                        file.path, ignore.line, ID, rule.name, f"silences {ignore.check}, which finds nothing here",
                        "remove the comment", "info",
                    )
                )
    return kept + found, silenced


def trouble(path: str, ignore: Ignore, ids: Collection[str]) -> Problem | None:
    """What is wrong with the comment itself; it then silences nothing."""
    if ignore.check not in ids:
        near = difflib.get_close_matches(ignore.check, sorted(ids), n=1)
        hint = f"did you mean {near[0]}?" if near else "see `obs check --list`"
        what = f"there is no check {ignore.check!r}: nothing is silenced"
        return Problem(path, ignore.line, ID, "obs:ignore", what, hint, "error")
    if not ignore.reason:
        what = f"gives no reason to silence {ignore.check}: nothing is silenced"
        mend = f"write # obs:ignore {ignore.check} and why"
        return Problem(path, ignore.line, ID, "obs:ignore", what, mend, "error")
    return None


def _rule_at(file: RuleFile, line: int) -> Rule | None:
    """The rule that a comment on this line belongs to: the one below a comment, else the one around it."""
    lines = file.text.splitlines()
    while line < len(lines) and lines[line - 1].lstrip().startswith("#") and lines[line].lstrip().startswith("#"):
        line += 1
    before = [rule for rule in file.rules if rule.line - 1 <= line]
    return max(before, key=lambda rule: rule.line, default=None)


def _inside(file: RuleFile, rule: Rule, problem: Problem) -> bool:
    later = [other.line for other in file.rules if other.line > rule.line]
    return rule.line <= problem.line < min(later, default=1 << 30)
