"""The server's version has no known hole.

What versions have which hole is told in one place, obs/sidecar/readiness.py, which the sidecar and the alert
InferenceServerVulnerable use as well. The version alone is looked at.

Mend: upgrade the image; until then keep ports 8000 and 8001 off untrusted networks.
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.doctor.facts import Facts
from obs.doctor.finding import Finding
from obs.doctor.releases import container
from obs.sidecar.readiness import known_vulnerabilities

ID = "vulnerable"


def check(facts: Facts) -> Iterator[Finding]:
    if facts.triton is None:
        return
    version = facts.triton.version
    for found in known_vulnerabilities("triton", version):
        fixed = ".".join(map(str, found.hole.fixed_in))
        image = container(f"{fixed}.0")
        says = "is affected by" if found.status == "affected" else "may be affected by"
        yield Finding(
            ID, "error" if found.status == "affected" else "warning", facts.triton.url,
            f"Triton {version or 'of an unknown version'} {says} {found.hole.id}; it is mended in {fixed}",
            "whoever reaches its HTTP or gRPC port can use it",
            f"use the image nvcr.io/nvidia/tritonserver:{image}-py3 or later; until then let nobody but your own gateway "
            "reach ports 8000 and 8001 (NetworkPolicy)",
        )
