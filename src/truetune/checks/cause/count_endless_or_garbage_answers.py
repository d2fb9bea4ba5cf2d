"""Counts what is wrong with the answers whose cause is looked for: they do not stop, or they are
garbage or empty.

The rules on causes share these counts, so that they agree on what has to be explained. At least half of the answers
have to fail: the trade-off is that a fault which spoils a third of them gets no cause, but no cause is named for what
may be chance.
"""

from __future__ import annotations

from truetune.checks.answers.count_bad_answers_per_pass import (
    BadAnswerCount,
    BadAnswers,
    count_bad_answers,
    does_reference_fit_limit,
)
from truetune.checks.judgement import Unmet
from truetune.generation.answer_samples import Sample, SampledRun
from truetune.generation.evidence_on_causes_of_answers import ModelEvidence, StopEstimate

STOPPING_UNKNOWN = Unmet(
    ("the probability of a stop token is not known"),
    "ask rows with references, and the model's files",
)
# A share of the answers that is a failure. Chosen, not measured: a cause that is in the weights or in serving acts on
# nearly all. At half, single hard prompts would be explained; near 1, one good answer would hide the cause.
FAILING_SHARE = 0.5


def endless_answers_where_at_least_half(evidence: ModelEvidence) -> BadAnswers | None:
    """The answers that did not stop though their references would have; None where they are fewer than half."""
    watched = evidence.watched

    def is_endless(sample: Sample) -> bool | None:
        """None where the limit was too short for the reference."""
        if not does_reference_fit_limit(watched, sample):
            return None
        return not sample.scores.stopped

    endless = count_bad_answers(watched, is_endless)
    return (
        endless
        if endless is not None and endless.count_in_last_pass.share >= FAILING_SHARE
        else None
    )


def answers_if_all_cut_before_references(evidence: ModelEvidence) -> tuple[Sample, ...]:
    """All answers, if each was cut before its reference ends, so that none could have stopped; else
    none.
    """
    samples = evidence.watched.looks[-1].samples
    could_stop = any(
        sample.scores.stopped or does_reference_fit_limit(evidence.watched, sample)
        for sample in samples
    )
    return () if could_stop else samples


def is_garbage_or_empty(sample: Sample) -> bool:
    """Is the answer no text at all?"""
    return sample.scores.garbage or sample.scores.empty


def count_garbage_or_empty_answers(watched: SampledRun) -> BadAnswerCount:
    """The answers of the last pass that are garbage or empty."""
    samples = watched.looks[-1].samples if watched.looks else ()
    return BadAnswerCount(0, sum(map(is_garbage_or_empty, samples)), len(samples))


def describe_stop_probability(stopping: StopEstimate) -> str:
    """A stop probability and its rank as text: `1.7e-05 (rank 812)`.

    The rank counts from 1, and is left out if it is not known.
    """
    rank = f" (rank {stopping.rank + 1:,})" if stopping.rank >= 0 else ""
    return f"{stopping.probability:.2g}{rank}"


def describe_stopping(evidence: ModelEvidence) -> str:
    """How many answers do not stop, and the probability of a stop behind the references."""
    samples = evidence.watched.looks[-1].samples if evidence.watched.looks else ()
    cut = sum(not sample.scores.stopped for sample in samples)
    text = f"{cut:,} of {len(samples):,} answers do not stop by themselves"
    if evidence.stopping is None:
        return text
    return (
        f"{text}; the probability of a stop token after the references is"
        f" {describe_stop_probability(evidence.stopping)}"
    )
