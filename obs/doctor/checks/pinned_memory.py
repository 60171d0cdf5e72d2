"""The pinned-memory pool has room.

When it is full Triton copies through pageable memory: slower inputs and outputs, no error.

Mend: --pinned-memory-pool-byte-size=BYTES, twice what it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.doctor.facts import Facts
from obs.doctor.finding import Finding

ID = "pinned-memory"

USED, TOTAL = "nv_pinned_memory_pool_used_bytes", "nv_pinned_memory_pool_total_bytes"
FULL = 0.9


def check(facts: Facts) -> Iterator[Finding]:
    if facts.page is None:
        return
    used = sum(sample.value for sample in facts.page.of(USED))
    total = sum(sample.value for sample in facts.page.of(TOTAL))
    if total > 0 and used / total > FULL:
        yield Finding(
            ID, "warning", f"{facts.page.place} {USED}", f"the pinned-memory pool is {used / total:.0%} full",
            "beyond it Triton copies through pageable memory: slower, and without an error",
            f"start Triton with --pinned-memory-pool-byte-size={int(2 * total)}",
        )
