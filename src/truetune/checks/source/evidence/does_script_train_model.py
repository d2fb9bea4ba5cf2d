"""Says whether a symbolic run of a script trains a model: by a trainer of a library, or by a loop
that calls `backward`.
"""

from __future__ import annotations

from truetune.source.symbolic_execution.trace_of_events import Trace

TRAINERS = ("transformers.*Trainer", "trl.*Trainer", "unsloth.*Trainer", "*lightning*.Trainer")


def run_trains_model(trace: Trace) -> bool:
    """Does a run train a model?"""
    return any(trace.calls(*TRAINERS)) or any(trace.methods("backward"))
