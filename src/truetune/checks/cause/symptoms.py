"""What is wrong with the answers that a cause is looked for."""

from __future__ import annotations

from truetune.checks.answers.seen import Seen, counted, fits
from truetune.generation.inquest import Inquest, Stopping
from truetune.generation.looks import Sample

MANY = 0.5
"""A share of the answers that is a failure"""


def endless(found: Inquest) -> Seen | None:
    """The answers that did not stop though their references would have; None where they are fewer than half."""
    watched = found.watched
    seen = counted(watched, lambda sample: not sample.scores.stopped if fits(watched, sample) else None)
    return seen if seen is not None and seen.last.share >= MANY else None


def all_cut(found: Inquest) -> tuple[Sample, ...]:
    """All answers, where each was cut before its reference ends, so that none could have stopped."""
    samples = found.watched.looks[-1].samples
    return () if any(sample.scores.stopped or fits(found.watched, sample) for sample in samples) else samples


def told(stopping: Stopping) -> str:
    """`1.7e-05 (rank 812)`"""
    return f"{stopping.probability:.2g}" + (f" (rank {stopping.rank + 1:,})" if stopping.rank >= 0 else "")
