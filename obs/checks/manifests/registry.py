"""The checks of manifests: one line per module, in the order in which they run."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from obs.checks import suppression
from obs.checks.manifests import (
    adapter,
    aggregation,
    dead_pods,
    double,
    fallback,
    grace,
    kserve,
    metric_names,
    missing_pods,
    null_values,
    polling,
    query_nan,
    query_zero,
    readable,
    replicas,
    scale_in,
    signal,
    stabilization,
    strings,
    target,
)
from obs.checks.manifests.objects import Manifest, parse
from obs.checks.manifests.world import ManifestWorld
from obs.checks.rulefiles import RuleFile, read_text
from obs.checks.rulefiles import parse as parse_rules
from obs.config import Config
from obs.errors import InputError
from obs.model.problem import Problem


class Check(Protocol):
    """A module of this package: ``ID``, a docstring that explains it, and ``check``."""

    ID: str

    def check(self, world: ManifestWorld) -> Iterable[Problem]: ...


CHECKS: tuple[Check, ...] = (
    readable,
    null_values,
    strings,
    fallback,
    query_zero,
    query_nan,
    dead_pods,
    missing_pods,
    aggregation,
    target,
    signal,
    scale_in,
    stabilization,
    grace,
    replicas,
    metric_names,
    adapter,
    double,
    polling,
    kserve,
)


_SCALES = re.compile(r"\b(HorizontalPodAutoscaler|ScaledObject|InferenceService|LLMInferenceService|seriesQuery)\b")


def load(config: Config, paths: Sequence[Path]) -> ManifestWorld:
    """The objects of YAML files and of folders of them. A file of a folder that is no YAML is passed over, or a finding
    when it names a scaler. ``InputError`` when a named file cannot be read, or there is no object."""
    manifests: list[Manifest] = []
    rules: list[RuleFile] = []
    passed_over: list[str] = []
    unreadable: list[Problem] = []
    for path in paths:
        before = len(manifests)
        for file in _files(path):
            source = read_text(file)
            try:
                manifests += parse(str(file), source)
                found = parse_rules(str(file), source)
            except InputError as error:
                if not path.is_dir():
                    raise
                if _SCALES.search(source):
                    unreadable.append(_unreadable(file, str(error)))
                else:
                    passed_over.append(str(file))
                continue
            if found is not None:
                rules.append(found)
        if len(manifests) == before and not unreadable:
            raise InputError(f"{path}: holds no Kubernetes object; name a YAML file or a folder of them")
    return ManifestWorld(config, tuple(manifests), tuple(rules), tuple(passed_over), tuple(unreadable))


def _unreadable(file: Path, text: str) -> Problem:
    """The line of an InputError about YAML as a finding."""
    found = re.match(rf"{re.escape(str(file))}(?::(\d+))?: (.*); ([^;]*)$", text)
    if found is None:
        return Problem(str(file), 0, readable.ID, file.name, text, "mend the syntax")
    return Problem(str(file), int(found[1] or 0), readable.ID, file.name, found[2], found[3])


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(
        one for one in path.rglob("*")
        if one.suffix in (".yaml", ".yml") and one.is_file()
        and not any(part.startswith(".") for part in one.relative_to(path).parts)
    )


def run(world: ManifestWorld) -> Iterator[Problem]:
    """The findings of the checks, each with its check's id; of two that are the same, one."""
    for check in CHECKS:
        found = (problem if problem.check else replace(problem, check=check.ID) for problem in check.check(world))
        yield from dict.fromkeys(found)


def apply_ignores(
    world: ManifestWorld, problems: Iterable[Problem], ids: Collection[str], ran: Collection[str]
) -> tuple[list[Problem], int]:
    """The problems that are left, with those of the comments themselves; and how many were silenced. Comments of rules
    are another's (``suppression.apply``)."""
    kept = list(problems)
    found: list[Problem] = []
    silenced = 0
    done: set[tuple[str, int]] = set()
    for one in world.manifests:
        if one.kind == "PrometheusRule":
            continue
        for ignore in one.ignores:
            wrong = suppression.trouble(one.path, ignore, ids)
            if wrong is not None:
                found += [] if (one.path, ignore.line) in done else [wrong]
                done.add((one.path, ignore.line))
                continue
            hit = [p for p in kept if (p.path, p.check, p.subject) == (one.path, ignore.check, one.subject)]
            silenced += len(hit)
            kept = [problem for problem in kept if problem not in hit]
            if not hit and ignore.check in ran and not one.root:
                what = f"silences {ignore.check}, which finds nothing here"
                found.append(Problem(one.path, ignore.line, suppression.ID, one.subject, what, "remove the comment", "info"))
    return kept + found, silenced


__all__ = ["CHECKS", "ManifestWorld", "apply_ignores", "load", "run"]
