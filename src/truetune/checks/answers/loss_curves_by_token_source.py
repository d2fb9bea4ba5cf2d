"""Losses of a run by the source of their tokens (contents of answers, stop tokens, all), for the
rules on answers.

A watched run records the mean loss of each kind of token. Here a curve is reduced to two levels, at first and at last;
the trade-off is that a loss which rose and fell again in between passes as if it had stayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from truetune.generation.answer_samples import SampledRun


def loss_curve_of_source(watched: SampledRun, source: str) -> list[float]:
    """The losses of one source, in order of their steps."""
    return [record.by_source[source] for record in watched.losses if source in record.by_source]


def content_losses(watched: SampledRun) -> list[float]:
    """The losses of the assistant's contents by step; of all tokens if those are not recorded."""
    return loss_curve_of_source(watched, "assistant content") or loss_curve_of_source(
        watched, "all"
    )


def content_loss_falls(watched: SampledRun, share: float = 0.9) -> bool:
    """Does the loss of the contents end below `share` of its beginning? Unknown losses: of a finished run, yes.

    A tenth is chosen, not measured: it is more than the noise of the last third's median, and any learning passes it.
    """
    values = content_losses(watched)
    if not values:
        return watched.finished
    first, last = first_loss_and_last_level(values)
    return last <= share * first


def first_loss_and_last_level(values: Sequence[float]) -> tuple[float, float]:
    """(loss at first, median of the last third).

    One value at first, for a loss falls fast there; a median at last, for single batches are noisy.
    """
    return values[0], median(values[-max(1, len(values) // 3) :])
