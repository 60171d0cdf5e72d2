"""The canary gate: pass, fail or inconclusive, by the raw series of two sides.

    from obs.evaluate.gate import gate

    with Client("http://127.0.0.1:9090") as client:
        found = gate(client, 'version="1"', 'version="2"', config=load_config(), span=900)
    print(found.verdict, found.reasons)
"""

from __future__ import annotations

from obs.evaluate.gate.ask import gate, gate_recording, watch
from obs.evaluate.gate.judge import Criterion, Gate, Measure, Side

__all__ = ["Criterion", "Gate", "Measure", "Side", "gate", "gate_recording", "watch"]
