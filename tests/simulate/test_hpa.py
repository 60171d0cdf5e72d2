"""The HPA's and KEDA's arithmetic against cases worked by hand from their documentation."""

from __future__ import annotations

import math

import pytest

from obs.simulate import hpa, keda
from obs.simulate.hpa import Behavior, Controller, PodState, Policy, Rules


def pods(running: int, pending: int = 0, *, deleted: int = 0, failed: int = 0) -> list[PodState]:
    """Pods a, b, c … : running first, then pending, deleted, failed."""
    states = [PodState("", "Running")] * running + [PodState("", "Pending", False)] * pending
    states += [PodState("", "Running", True, True)] * deleted + [PodState("", "Failed", False)] * failed
    return [PodState("abcdefghijklmnop"[index], one.phase, one.ready, one.deleted) for index, one in enumerate(states)]


def values(*numbers: float | None) -> dict[str, float]:
    return {"abcdefghijklmnop"[index]: number for index, number in enumerate(numbers) if number is not None}


# (why, current, target, values, pods, proposal)
PODS_METRIC = [
    ("documentation: 200m over 100m doubles", 1, 0.1, values(0.2), pods(1), 2),
    ("documentation: 50m over 100m halves", 2, 0.1, values(0.05, 0.05), pods(2), 1),
    ("on target", 3, 0.75, values(0.75, 0.75, 0.75), pods(3), 3),
    ("ratio 1.1 exactly is within the tolerance", 3, 1.0, values(1.1, 1.1, 1.1), pods(3), 3),
    ("just above the tolerance", 3, 1.0, values(1.11, 1.11, 1.11), pods(3), 4),
    ("ratio 0.9 exactly is within the tolerance", 10, 1.0, values(*[0.9] * 10), pods(10), 10),
    ("just below the tolerance", 10, 1.0, values(*[0.89] * 10), pods(10), 9),
    ("the mean counts, not the largest", 2, 1.0, values(2.0, 0.0), pods(2), 2),
    ("no float dust: 3 pods at 0.8 over 0.6 is 4, not 5", 3, 0.6, values(0.8, 0.8, 0.8), pods(3), 4),
    # the rest asks for more: a missing pod counts 0. (3+3+0)/3/1 = 2, times 3
    ("missing on the way up is 0", 3, 1.0, values(3.0, 3.0), pods(3), 6),
    # (1.3+1.3+0)/3 = 0.87: the direction turns round
    ("missing turns the direction round: hold", 3, 1.0, values(1.3, 1.3), pods(3), 3),
    # the rest asks for fewer: a missing pod counts 1. (0.2+0.2+1)/3 = 0.47, times 3 = 1.4
    ("missing on the way down is the target", 3, 1.0, values(0.2, 0.2), pods(3), 2),
    # (0.85+0.85+1)/3 = 0.9
    ("missing on the way down, then within the tolerance", 3, 1.0, values(0.85, 0.85), pods(3), 3),
    # upstream's branch is "less than 1, or else": exactly on target a missing pod counts 0
    ("a ratio of exactly 1 with a missing pod scales in", 2, 1.0, values(1.0), pods(2), 1),
    # 3 pods at 2, 3 pending at 0: (6+0)/6 = 1
    ("pending pods on the way up are 0", 6, 1.0, values(2.0, 2.0, 2.0), pods(3, 3), 6),
    # 3 pods at 4, 3 pending: 12/6 = 2, times 6
    ("pending pods, and yet more is needed", 6, 1.0, values(4.0, 4.0, 4.0), pods(3, 3), 12),
    # on the way down pending pods are left out: ceil(0.5 × 2)
    ("pending pods on the way down do not count", 4, 1.0, values(0.5, 0.5), pods(2, 2), 1),
    ("deleted pods do not count", 2, 1.0, values(2.0, 2.0, 9.0), pods(2, deleted=1), 4),
    ("failed pods do not count", 2, 1.0, values(2.0, 2.0, 9.0), pods(2, failed=1), 4),
    ("a running pod that is not ready counts in full", 2, 1.0, values(2.0, 2.0),
     [PodState("a"), PodState("b", ready=False)], 4),
    ("idle", 5, 1.0, values(0, 0, 0, 0, 0), pods(5), 0),
]


@pytest.mark.parametrize(("current", "target", "given", "states", "wanted"), [case[1:] for case in PODS_METRIC],
                         ids=[case[0] for case in PODS_METRIC])
def test_pods_metric(current: int, target: float, given: dict[str, float], states: list[PodState], wanted: int) -> None:
    assert hpa.pods_metric(current, target, given, states) == wanted


def test_no_pods_and_no_values_are_errors() -> None:
    with pytest.raises(hpa.NoMetric, match="no pods"):
        hpa.pods_metric(1, 1.0, {}, [])
    with pytest.raises(hpa.NoMetric, match="did not receive metrics"):
        hpa.pods_metric(1, 1.0, {}, pods(2))
    with pytest.raises(hpa.NoMetric, match="did not receive metrics"):  # only a pod that is pending has a value
        hpa.pods_metric(1, 1.0, values(None, None, 4.0), pods(2, 1))


def test_tolerance_can_be_set() -> None:
    assert hpa.pods_metric(10, 1.0, values(*[1.06] * 10), pods(10)) == 10
    assert hpa.pods_metric(10, 1.0, values(*[1.06] * 10), pods(10), tolerance=0.05) == 11


@pytest.mark.parametrize(("replicas", "target", "value", "wanted"), [
    (2, 5.0, 10.0, 2),   # 10 over 5 × 2: on target
    (2, 5.0, 11.0, 2),   # ratio 1.1
    (2, 5.0, 11.5, 3),   # ratio 1.15: ceil(11.5 / 5)
    (4, 5.0, 9.0, 2),    # ratio 0.45: ceil(9 / 5)
    (4, 5.0, 0.0, 0),    # an empty result read as 0 asks for nothing at all
    (0, 5.0, 6.0, 2),
])
def test_external_average(replicas: int, target: float, value: float, wanted: int) -> None:
    assert hpa.external_average(replicas, target, value) == wanted


@pytest.mark.parametrize(("current", "ready", "target", "value", "wanted"), [
    (4, 4, 10.0, 20.0, 8),
    (4, 2, 10.0, 20.0, 4),   # only ready pods count
    (4, 4, 10.0, 10.9, 4),
    (4, 4, 10.0, 4.0, 2),
    (0, 0, 10.0, 25.0, 3),   # from zero: the ratio itself
])
def test_external_value(current: int, ready: int, target: float, value: float, wanted: int) -> None:
    assert hpa.external_value(current, ready, target, value) == wanted


@pytest.mark.parametrize(("current", "proposals", "wanted"), [
    (4, [3, 6, 5], 6),
    (4, [3, 2], 3),
    (4, [None, 6], 6),      # a metric in error does not stop scaling out
    (4, [None, 3], None),   # but scaling in
    (4, [None, 4], 4),
    (4, [None, None], None),
])
def test_combine(current: int, proposals: list[int | None], wanted: int | None) -> None:
    assert hpa.combine(current, proposals) == wanted


def test_stabilisation_takes_the_extremes_of_the_window() -> None:
    behavior = Behavior(up=Rules(60, ()), down=Rules(300, ()))
    history = [(0.0, 9), (250.0, 6), (280.0, 4)]
    # down: the highest of the last 300 s; at 301 the 9 is out
    assert hpa.stabilised(299.0, 8, 2, history, behavior) == 8
    assert hpa.stabilised(301.0, 8, 2, history, behavior) == 6
    # up: the lowest of the last 60 s
    assert hpa.stabilised(301.0, 3, 8, history, behavior) == 4
    assert hpa.stabilised(345.0, 3, 8, history, behavior) == 8


DOWN_4_OR_10 = Rules(300, (Policy("Pods", 4, 60), Policy("Percent", 10, 60)))


@pytest.mark.parametrize(("current", "rules", "wanted"), [
    (80, DOWN_4_OR_10, 72),     # documentation: 10 % of 80 is 8 pods
    (72, DOWN_4_OR_10, 64),     # documentation: "8 pods will be reduced"; int(64.8)
    (40, DOWN_4_OR_10, 36),     # documentation: from 40 on, 4 pods
    (6, DOWN_4_OR_10, 2),
    (80, Rules(300, DOWN_4_OR_10.policies, "Min"), 76),   # the smaller change
    (80, Rules(300, DOWN_4_OR_10.policies, "Disabled"), 80),
    (80, Rules(300, (Policy("Percent", 100, 15),)), 0),
])
def test_down_limit(current: int, rules: Rules, wanted: int) -> None:
    assert hpa.down_limit(0.0, current, [], [], rules) == wanted


@pytest.mark.parametrize(("current", "added", "wanted"), [
    (1, [], 5),                       # +4 pods beat +100 %
    (6, [], 12),                      # +100 % beats +4 pods
    (6, [(-10.0, 4)], 6),             # 2 at the period's start: both allow up to 6
    (6, [(-20.0, 4)], 12),            # the period of 15 s is over
])
def test_up_limit(current: int, added: list[tuple[float, int]], wanted: int) -> None:
    assert hpa.up_limit(0.0, current, added, [], Behavior().up) == wanted


def test_controller_bounds_rate_and_memory() -> None:
    controller = Controller(2, 30)
    assert controller.decide(0, 2, 100) == 6           # +4 pods in 15 s
    assert controller.decide(14, 6, 100) == 6          # the period is not over
    assert controller.decide(15, 6, 100) == 12
    assert controller.decide(30, 12, 100) == 24
    assert controller.decide(45, 24, 100) == 30        # the maximum
    assert controller.decide(60, 30, 1) == 30          # stabilisation: 100 five minutes ago
    assert controller.decide(344, 30, 1) == 30
    assert controller.decide(346, 30, 1) == 2          # 100 % a period, and the minimum


def test_controller_without_a_proposal_changes_nothing() -> None:
    controller = Controller(2, 30)
    assert controller.decide(0, 7, None) == 7
    assert controller.decide(15, 40, None) == 30       # above the maximum, whatever the metrics
    assert controller.decide(30, 1, None) == 2
    assert controller.decide(45, 0, 9) == 0            # at zero the HPA is disabled


def test_one_pod_a_minute() -> None:
    controller = Controller(1, 30, Behavior(down=Rules(0, (Policy("Pods", 1, 60),))))
    seen, current = [], 5
    for now in range(0, 150, 15):
        current = controller.decide(now, current, 1)
        seen.append(current)
    # the controller's first look counts its own size as a recommendation
    assert seen == [4, 4, 4, 4, 3, 3, 3, 3, 2, 2]


# --- KEDA -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nothing", [None, math.nan, math.inf])
def test_no_data_is_zero_by_default(nothing: float | None) -> None:
    assert keda.Trigger(5.0).metric(nothing, 4) == 0.0


@pytest.mark.parametrize("nothing", [None, math.nan, math.inf])
def test_no_data_is_an_error_when_it_may_not_be_ignored(nothing: float | None) -> None:
    with pytest.raises(hpa.NoMetric):
        keda.Trigger(5.0, ignore_null=False).metric(nothing, 4)


def test_fallback_after_more_than_the_threshold_and_recovery() -> None:
    trigger = keda.Trigger(0.75, False, keda.Fallback(3, 6))
    for _ in range(3):
        with pytest.raises(hpa.NoMetric):
            trigger.metric(None, 4)
    assert hpa.external_average(4, 0.75, trigger.metric(None, 4)) == 6
    assert trigger.metric(1.5, 4) == 1.5
    with pytest.raises(hpa.NoMetric):  # the count began again
        trigger.metric(None, 4)


def test_fallback_never_fires_while_null_is_ignored() -> None:
    trigger = keda.Trigger(0.75, True, keda.Fallback(0, 6))
    assert [trigger.metric(None, 4) for _ in range(5)] == [0.0] * 5
    assert trigger.metric(None, 4, failed=True) == 0.75 * 6  # an unreachable Prometheus is an error all the same


@pytest.mark.parametrize(("behavior", "current", "wanted"), [
    ("static", 9, 4), ("currentReplicas", 9, 9), ("currentReplicasIfHigher", 9, 9), ("currentReplicasIfHigher", 2, 4),
    ("currentReplicasIfLower", 9, 4), ("currentReplicasIfLower", 2, 2),
])
def test_fallback_behaviors(behavior: str, current: int, wanted: int) -> None:
    assert keda.fallback_replicas(keda.Fallback(3, 4, behavior), current) == wanted  # type: ignore[arg-type]


def test_values_are_milli_and_never_negative() -> None:
    assert keda.Trigger(5.0).metric(0.12345, 1) == 0.124
    assert keda.Trigger(5.0).metric(-3.0, 1) == 0.0


def test_activation_and_cooldown() -> None:
    activation = keda.Activation(threshold=2.0, cooldown=300.0)
    assert activation.replicas(0, 0, 2.0, 0) == 0          # not above the threshold
    assert activation.replicas(30, 0, 2.5, 0) == 1
    assert activation.replicas(60, 1, 0.0, 0) == 1         # idle: the cooldown begins
    assert activation.replicas(90, 1, None, 0) == 1        # an error is no sign of idleness
    assert activation.replicas(330, 1, 0.0, 0) == 1
    assert activation.replicas(360, 1, 0.0, 0) == 0
    assert activation.replicas(360, 1, 0.0, 1) == 1        # a resident service
