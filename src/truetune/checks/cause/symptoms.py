"""What is wrong with the answers that a cause is looked for."""

from __future__ import annotations

from truetune.checks.answers.bad_answers import BadAnswers, counted, fits
from truetune.checks.judgement import Unmet
from truetune.generation.answer_samples import Sample
from truetune.generation.model_evidence import ModelEvidence, StopEstimate

UNTOLD_STOPPING = Unmet("P(stop) is not told", "ask rows with references, and the model's files")
MANY = 0.5
"""A share of the answers that is a failure"""


def endless(found: ModelEvidence) -> BadAnswers | None:
    """The answers that did not stop though their references would have; None where they are fewer than half."""
    watched = found.watched
    seen = counted(
        watched, lambda sample: not sample.scores.stopped if fits(watched, sample) else None
    )
    return seen if seen is not None and seen.last.share >= MANY else None


def all_cut(found: ModelEvidence) -> tuple[Sample, ...]:
    """All answers, where each was cut before its reference ends, so that none could have stopped."""
    samples = found.watched.looks[-1].samples
    return (
        ()
        if any(sample.scores.stopped or fits(found.watched, sample) for sample in samples)
        else samples
    )


def describe_probability(stopping: StopEstimate) -> str:
    """`1.7e-05 (rank 812)`"""
    return f"{stopping.probability:.2g}" + (
        f" (rank {stopping.rank + 1:,})" if stopping.rank >= 0 else ""
    )


def describe_stopping(found: ModelEvidence) -> str:
    """How many answers do not stop, and the probability of a stop behind the references."""
    samples = found.watched.looks[-1].samples if found.watched.looks else ()
    cut = sum(not sample.scores.stopped for sample in samples)
    behind = (
        ""
        if found.stopping is None
        else f"; P(stop) behind the references is {describe_probability(found.stopping)}"
    )
    return f"{cut:,} of {len(samples):,} answers do not stop by themselves{behind}"
