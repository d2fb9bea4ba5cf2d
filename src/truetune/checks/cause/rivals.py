"""Rivals: what else may make a model answer badly, and which of it was tried before a cause was named."""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.cause.symptoms import MANY
from truetune.generation.answer_samples import SampledRun
from truetune.generation.model_evidence import ModelEvidence

KNOWS = 3.0
"""Nats a token of the reference answers up to which a model has learned them, more or less: sound text has 1 to 4"""


def tried(found: ModelEvidence) -> Iterator[str]:
    """Rivals that were looked at."""
    if found.base is not None:
        yield "the base's own answers"
    if found.base_stopping is not None:
        yield "stopping under the base"
    if found.contract:
        yield "the prompts against those of the training"
    if found.effect is not None:
        yield "the references with and without the training"
    elif found.surprise is not None:
        yield "the references under the model"
    if found.cooler is not None:
        yield "the same prompts, asked greedily"
    if found.alone:
        yield "prompts alone, out of their batch"
    if found.folder is not None:
        yield "the files"


def untried(found: ModelEvidence) -> Iterator[str]:
    """Rivals that were not, each with what would let them be."""
    if found.base is None and found.base_stopping is None:
        yield "the base (name it with --base)"
    if not found.contract:
        yield "the prompts of the training (no record of it is known)"
    if found.surprise is None:
        yield "the references under the model (its log-probabilities are not told)"


def report_rivals(found: ModelEvidence) -> tuple[str, ...]:
    """Lines of evidence for a cause."""
    lines = (("tried", list(tried(found))), ("not tried", list(untried(found))))
    return tuple(f"{word}: {'; '.join(rivals)}" for word, rivals in lines if rivals)


def babbles(watched: SampledRun | None) -> bool:
    """Are half of the answers garbage or empty?"""
    samples = watched.looks[-1].samples if watched is not None and watched.looks else ()
    bad = sum(sample.scores.garbage or sample.scores.empty for sample in samples)
    return bool(samples) and bad >= MANY * len(samples)


def learned_nothing(found: ModelEvidence) -> bool:
    """Does the model babble, and are the reference answers not likely either, or does its base babble too? Then no
    single token is what it lacks."""
    if not babbles(found.watched):
        return False
    return babbles(found.base) or found.surprise is None or found.surprise > KNOWS
