"""Places at which a run was taken up again without what it had: found in the curves themselves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from truetune.logs.robust_statistics import fit_trend, noise_sigma
from truetune.logs.run_log import Curve, RunLog

MIN_RATES, MIN_LOSSES = 8, 12
"""Records in which a seam can be told"""
COMPARED_RECORDS = 10
"""Records on each side of a seam that are compared"""
ENDED_RATE_SHARE = 0.02
"""Of the peak: a learning rate below it has come to its end"""
SIMILAR_LEAP_SHARE = 0.6
"""Of the highest leap: another one as high as this is of its kind"""


class Restart(NamedTuple):
    """One place where the run started afresh."""

    step: float
    """The first step after it"""
    lost: str
    """`schedule`, `weights`, or `run`"""
    text: str
    """What shows it"""


def find_restarts(log: RunLog) -> tuple[Restart, ...]:
    """Every place where the schedule, the weights or the step count began anew."""
    found = [
        *_step_count_restarts(log),
        *_schedule_restarts(log.curve("learning_rate").finite()),
        *_lost_weights(log),
        *_repeated_trainings(log),
    ]
    one_each: dict[float, Restart] = {}
    for seam in found:
        one_each.setdefault(seam.step, seam)
    return tuple(one_each.values())


def _step_count_restarts(log: RunLog) -> list[Restart]:
    """A later process counts from the beginning, although the one before it had come further."""
    found = []
    for before, after in zip(log.parts, log.parts[1:], strict=False):
        old, new = before.get("loss"), after.get("loss")
        if old and new and old.step.size > 3 and new.step[0] <= old.step[0]:
            text = (
                f"step {old.step[-1]:,.0f} is followed by step {new.step[0]:,.0f}, as at the"
                " beginning"
            )
            found.append(Restart(float(new.step[0]), "run", text))
    return found


def _schedule_restarts(rate: Curve) -> list[Restart]:
    """The learning rate leaps, and from there repeats its own beginning; restarts that it had come down
    for are left."""
    n, value = rate.step.size, rate.value
    if n < MIN_RATES or value.max() <= 0:
        return []
    peak = float(value.max())
    found = []
    for place in np.flatnonzero(np.abs(np.diff(value)) > 0.2 * peak).tolist():
        start = place + 1
        size = min(n - start, start, 2 * COMPARED_RECORDS)
        head, tail = value[:size], value[start : start + size]
        same = size >= 4 and np.abs(head - tail).max() < 2e-3 * peak and np.ptp(head) > 2e-3 * peak
        following = value[place] + min(0.0, float(value[place] - value[place - 1]))
        if (
            same
            and following > 0.05 * peak
            and rate.step[start] - rate.step[place] < 2 * np.median(np.diff(rate.step))
        ):
            text = (
                f"the learning rate leaps from {value[place]:.3g} to {value[start]:.3g} and repeats"
                " its beginning"
            )
            found.append(Restart(float(rate.step[start]), "schedule", text))
    apart = np.diff([rate.step[0], *(seam.step for seam in found)])
    return [] if len(found) > 1 and np.ptp(apart) <= 2 * np.median(np.diff(rate.step)) else found


def _lost_weights(log: RunLog) -> list[Restart]:
    """The loss leaps up to where it was in the beginning, and falls a second time."""
    loss = log.curve("loss").finite()
    n = loss.step.size
    if log.kind != "language" or n < MIN_LOSSES:
        return []
    rises = np.diff(loss.value)
    start = int(np.argmax(rises)) + 1
    if np.sum(rises > SIMILAR_LEAP_SHARE * rises[start - 1]) > 1:
        return []  # it leaps like that again and again: rows in an order, not weights that were lost
    size = min(COMPARED_RECORDS, start, n - start)
    if size < 4:
        return []
    before, after = loss.value[start - size : start], loss.value[start : start + size]
    first = loss.value[:size]
    sigma = max(noise_sigma(loss.value), 1e-9)
    height = float(np.median(first) - np.median(before))
    leap = float(loss.value[start] - np.median(before[-5:]))
    back = abs(float(np.median(after) - np.median(first)))
    rest = Curve(loss.step[start:], loss.value[start:])
    if leap < 8 * sigma or height < 4 * sigma or back > 0.25 * height or fit_trend(rest).z > -1.6:
        return []
    text = (
        f"the loss leaps from {np.median(before[-5:]):.4g} to {loss.value[start]:.4g}; it began at"
        f" {loss.value[0]:.4g}"
    )
    return [Restart(float(loss.step[start]), "weights", text)]


def _repeated_trainings(log: RunLog) -> list[Restart]:
    """A schedule that had come to its end leaps up to begin another, and at the same record the loss leaps as well:
    a second training under the same step count."""
    rate, loss = log.curve("learning_rate").finite(), log.curve("loss").finite()
    if (
        log.kind != "language"
        or rate.step.size < 2 * COMPARED_RECORDS
        or loss.step.size < 2 * COMPARED_RECORDS
    ):
        return []
    before, after = rate.value[:-1], rate.value[1:]
    ended = (before < ENDED_RATE_SHARE * np.maximum.accumulate(rate.value)[:-1]) & (
        after > ENDED_RATE_SHARE * rate.value.max()
    )
    sigma = max(noise_sigma(loss.value), 1e-9)
    found = []
    for place in np.flatnonzero(ended).tolist():
        step = float(rate.step[place + 1])
        start = int(np.searchsorted(loss.step, step))
        if not COMPARED_RECORDS <= start < loss.step.size - COMPARED_RECORDS:
            continue
        low = float(np.median(loss.value[start - COMPARED_RECORDS : start - 1]))
        high = float(loss.value[start - 1 : start + 1].max())
        if (
            high - low > 8 * sigma
            and fit_trend(Curve(loss.step[start:], loss.value[start:])).z < -1.6
        ):
            rise = f"the loss from {low:.4g} to {high:.4g}"
            text = (
                f"the learning rate leaps from its end to {rate.value[place + 1]:.3g}, and {rise}"
            )
            found.append(Restart(step, "run", text))
    return found
