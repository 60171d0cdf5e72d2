"""Measures the simulator: a simulated day with up to 20 replicas, and what a request and a sample cost.

The peer is a fixed loop of plain Python on the same core in the same run, so that a loaded or slow machine shows. Figures are
CPU seconds of one process.

    python tests/bench/simulate.py [--hours 24]
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from obs.cli.simulate import RECOMMENDED_FOR  # noqa: E402
from obs.simulate.fleet import Fleet  # noqa: E402
from obs.simulate.policies import policy  # noqa: E402
from obs.simulate.scenarios import SCENARIOS  # noqa: E402


def peer() -> float:
    """CPU seconds of ten million additions in plain Python."""
    begun = time.process_time()
    total = 0
    for number in range(10_000_000):
        total += number
    return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0)
    args = parser.parse_args()
    scenario = SCENARIOS["day"]
    arrivals = [one for one in scenario.arrivals(1) if one.at <= args.hours * 3600]
    settings = replace(scenario.settings(), seconds=args.hours * 3600)
    loop = peer()
    print(f"peer: ten million additions  {loop:6.2f} s CPU")
    for name, sample in ((RECOMMENDED_FOR, 1.0), (RECOMMENDED_FOR, 5.0), ("load", 1.0), ("queue", 1.0)):
        begun = time.process_time()
        result = Fleet(replace(settings, sample=sample), arrivals, policy(name), 1).run()
        spent = time.process_time() - begun
        text = f"{name}, sampled every {sample:g} s" if policy(name).needs_sidecar else name
        print(f"{args.hours:g} h, {text:29} {spent:6.1f} s CPU  {spent / loop:6.1f} x peer  {len(arrivals):,} requests, "
              f"{result.replica_hours:.0f} replica-hours, peak {result.peak}, SLO {result.attainment:.3f}", flush=True)


if __name__ == "__main__":
    main()
