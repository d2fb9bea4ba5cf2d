"""Is a training loss a sum? Told by the evaluation loss of the same run, which is a mean."""

from __future__ import annotations

import numpy as np

from truetune.logs.log import RunLog

MIN_EVALUATIONS = 4
NEAR = 0.08
"""How far the ratio may be from a whole number: 5.02 / 0.304 = 16.5 of a published run with 16 accumulated batches"""
FALL = 0.8
"""The losses must fall to this share, so that a constant factor is told from a constant distance"""


def summed_over(log: RunLog) -> float | None:
    """About so many means were added up to make the logged loss; None where that is not shown."""
    loss, evaluated = log.curve("loss").finite(), log.curve("eval_loss").finite()
    known = (evaluated.step >= loss.step[0]) & (evaluated.value > 0) if loss else np.zeros(0, dtype=bool)
    if not log.of_tokens or known.sum() < MIN_EVALUATIONS:
        return None
    step, value = evaluated.step[known], evaluated.value[known]
    if value[-1] > FALL * value[0]:
        return None
    ratios = (loss.at(step) / value)[step.size // 2 :]  # a mean over many steps lags behind while the loss falls fast
    times = float(np.median(ratios))
    whole = [count for count in _possible(log, times) if np.abs(ratios - count).max() <= NEAR * count]
    return times if whole else None


def _possible(log: RunLog, times: float) -> tuple[float, ...]:
    """Whole numbers of batches that may have been added up: by the settings, where the log knows them."""
    accumulated = log.number("gradient_accumulation_steps")
    if accumulated is None:
        counts: tuple[float, ...] = (round(times),)
    else:
        counts = (accumulated, accumulated * (log.number("devices") or 1))
    return tuple(count for count in counts if count >= 2)
