"""The curves of the losses by source."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from truetune.generation.answer_samples import SampledRun


def curve(watched: SampledRun, source: str) -> list[float]:
    """The losses of one source, in order of their steps."""
    return [record.by_source[source] for record in watched.losses if source in record.by_source]


def content(watched: SampledRun) -> list[float]:
    """The losses of the assistant's contents, or else of all."""
    return curve(watched, "assistant content") or curve(watched, "all")


def falls(watched: SampledRun, share: float = 0.9) -> bool:
    """Does the loss of the contents end below so much of its beginning? Where none is known: of a model that has been
    trained, yes."""
    values = content(watched)
    return ends(values)[1] <= share * ends(values)[0] if values else watched.finished


def ends(values: Sequence[float]) -> tuple[float, float]:
    """Level at first and at last: the first value, the median of the last third."""
    return values[0], median(values[-max(1, len(values) // 3) :])
