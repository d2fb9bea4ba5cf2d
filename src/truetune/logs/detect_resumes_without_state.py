"""Detects from the curves where a run was resumed without its weights, its optimizer or its step
count.

Trainers print nothing when a checkpoint is not loaded, or loaded without its optimizer. What shows it is a curve that
repeats its beginning: the step count, the learning rate, or the loss. Schedules with restarts and rows in a fixed order
make leaps too, so a leap alone is never taken for one: what follows must be like the beginning, and the leap alone of
its kind.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from truetune.logs.robust_statistics import fit_robust_trend, noise_sigma, warmup_slope
from truetune.logs.run_log import Curve, RunLog

MIN_RATES, MIN_LOSSES = 8, 12
"""Records in which a restart can be seen: four on each side of it are compared at least"""
COMPARED_RECORDS = 10
"""Records on each side of a restart that are compared. Chosen, not measured: fewer are noise, more reach into what the
run learned since"""
ENDED_RATE_SHARE = 0.02
"""Of the peak: a learning rate below it has come to its end"""
MIN_WARMUP_RECORDS = 4
"""Records of a rate that rises again, from which it is a warm-up. Chosen, not measured: three lie near a line by
chance"""
MAX_WARMUP_OFFSET = 0.1
"""Of its top: how far a warm-up begins from 0, as schedules count from step 0 or 1"""
SIMILAR_LEAP_SHARE = 0.6
"""Of the highest leap: another one as high as this is of its kind"""


class Restart(NamedTuple):
    """One place where the run started afresh."""

    step: float
    """The first step after it"""
    lost: str
    """`schedule`, `weights`, `run`, or `everything`: nothing was resumed"""
    text: str
    """What shows it"""


def find_restarts(log: RunLog) -> tuple[Restart, ...]:
    """Every place where the schedule, the weights or the step count started again."""
    # One restart may show in several curves. The surest sign comes first, and names it.
    restarts = _launches_that_resumed_nothing(log)
    restarts += _step_count_restarts(log)
    restarts += _learning_rate_restarts(log.curve("learning_rate").finite())
    restarts += _losses_back_at_beginning(log)
    restarts += _second_trainings(log)
    by_step: dict[float, Restart] = {}
    for restart in restarts:
        by_step.setdefault(restart.step, restart)
    return tuple(by_step.values())


def _launches_that_resumed_nothing(log: RunLog) -> list[Restart]:
    """The epoch, the learning rate and the loss go back to their beginning: a launch that resumed
    nothing.
    """
    epoch, loss = log.curve("epoch").finite(), log.curve("loss").finite()
    rate = log.curve("learning_rate").finite()
    if log.kind != "language" or epoch.step.size < MIN_LOSSES or loss.step.size < MIN_LOSSES:
        return []
    restarts = []
    for place in np.flatnonzero(np.diff(epoch.value) < 0).tolist():
        step = float(epoch.step[place + 1])
        before, after = epoch.value[place], epoch.value[place + 1]
        start = int(np.searchsorted(loss.step, step))
        # the first record again, and not one or two that were printed out of order
        if after > epoch.value[0] or start < 4 or start >= loss.step.size:
            continue
        if rate and abs(float(rate.at(step)) - rate.value[0]) > 1e-3 * rate.value.max():
            continue
        learned = float(loss.value[0] - np.median(loss.value[start - 4 : start]))
        if learned > 0 and abs(float(loss.value[start] - loss.value[0])) > 0.25 * learned:
            continue
        text = (
            f"epoch {before:.4g} is followed by epoch {after:.4g}, and the loss goes from"
            f" {loss.value[start - 1]:.4g} to {loss.value[start]:.4g} (it started at {loss.value[0]:.4g})"
        )
        restarts.append(Restart(step, "everything", text))
    return restarts


def _step_count_restarts(log: RunLog) -> list[Restart]:
    """The places where a later process counts steps from the beginning, although the one before it
    had come further.
    """
    restarts = []
    for before, after in zip(log.parts, log.parts[1:], strict=False):
        old, new = before.get("loss"), after.get("loss")
        if old and new and old.step.size > 3 and new.step[0] <= old.step[0]:
            text = (
                f"step {old.step[-1]:,.0f} is followed by step {new.step[0]:,.0f}, as at the"
                " beginning"
            )
            restarts.append(Restart(float(new.step[0]), "run", text))
    return restarts


def _learning_rate_restarts(rate: Curve) -> list[Restart]:
    """The places where the learning rate jumps and then repeats its own beginning, or drops to 0 and
    warms up once more; restarts after it had come down are left out.
    """
    value = rate.value
    if value.size < MIN_RATES or value.max() <= 0:
        return []
    peak = float(value.max())
    restarts = []
    for place in np.flatnonzero(np.abs(np.diff(value)) > 0.2 * peak).tolist():
        if not _is_schedule_cut_off(rate, place):
            continue
        start = place + 1
        is_same = _repeats_beginning(rate, start)
        top = None if is_same else _top_of_second_warmup(rate, place)
        if is_same or top is not None:
            text = f"the learning rate jumps from {value[place]:.3g} to {value[start]:.3g} and " + (
                "repeats its start" if top is None else f"warms up again to {top:.3g}"
            )
            restarts.append(Restart(float(rate.step[start]), "schedule", text))
    return [] if _are_restarts_schedule_cycles(rate, restarts) else restarts


def _is_schedule_cut_off(rate: Curve, place: int) -> bool:
    """Does the schedule end before it has come down, with no gap in the records after it?"""
    value, step = rate.value, rate.step
    # Where the schedule would have gone next: a cosine with restarts has come down to its end before it leaps.
    following = value[place] + min(0.0, float(value[place] - value[place - 1]))
    if following <= 0.05 * value.max():
        return False
    return bool(step[place + 1] - step[place] < 2 * np.median(np.diff(step)))


def _repeats_beginning(rate: Curve, start: int) -> bool:
    """Is the rate from this record on the same as from the first record on?"""
    value = rate.value
    size = min(value.size - start, start, 2 * COMPARED_RECORDS)
    if size < 4:
        return False
    head, tail = value[:size], value[start : start + size]
    tolerance = 2e-3 * float(value.max())
    # A stretch that is constant repeats any other: only a slope that returns is a beginning.
    return bool(np.abs(head - tail).max() < tolerance < np.ptp(head))


def _are_restarts_schedule_cycles(rate: Curve, restarts: list[Restart]) -> bool:
    """Are the restarts at equal distances? Then they are a schedule's own cycles, and nobody's crash."""
    distances = np.diff([rate.step[0], *(restart.step for restart in restarts)])
    return len(restarts) > 1 and bool(np.ptp(distances) <= 2 * np.median(np.diff(rate.step)))


def _top_of_second_warmup(rate: Curve, place: int) -> float | None:
    """The rate to which a second warm-up leads after this record; None where there is none.

    The schedule that begins again may be of another length, so only its warm-up is compared: it rises from 0 in a
    straight line, as the log began to.
    """
    start = place + 1
    value = rate.value
    if value[start] >= value[place] or value[1] <= value[0]:
        return None
    top = start + int(np.argmax(value[start:]))
    steps = rate.step[start : top + 1] - rate.step[place]
    if steps.size < MIN_WARMUP_RECORDS:
        return None
    slope = warmup_slope(Curve(steps, value[start : top + 1]))
    if slope is None:
        return None
    offset = float(value[start] - slope * steps[0])
    is_from_zero = abs(offset) <= MAX_WARMUP_OFFSET * value[top] + slope
    return float(value[top]) if is_from_zero else None


def _losses_back_at_beginning(log: RunLog) -> list[Restart]:
    """The places where the loss jumps up to its beginning and falls a second time, because weights
    were not loaded.
    """
    loss = log.curve("loss").finite()
    n = loss.step.size
    if log.kind != "language" or n < MIN_LOSSES:
        return []
    rises = np.diff(loss.value)
    start = int(np.argmax(rises)) + 1
    # it leaps like that again and again: rows in an order, not weights that were lost
    if np.sum(rises > SIMILAR_LEAP_SHARE * rises[start - 1]) > 1:
        return []
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
    # Weights that were lost bring the loss back to its beginning (within a quarter of what had been learned) and are
    # learned again (z < -1.6: p is about 0.05, one-sided). A divergence stays up, a spike comes back at once. 8 and 4
    # sigma are chosen, not measured: the largest of ten thousand normal values is at about 4.
    if (
        leap < 8 * sigma
        or height < 4 * sigma
        or back > 0.25 * height
        or fit_robust_trend(rest).z > -1.6
    ):
        return []
    text = (
        f"the loss jumps from {np.median(before[-5:]):.4g} to {loss.value[start]:.4g}; it started at"
        f" {loss.value[0]:.4g}"
    )
    return [Restart(float(loss.step[start]), "weights", text)]


def _second_trainings(log: RunLog) -> list[Restart]:
    """The places where a finished schedule begins again and the loss jumps at the same record: a
    second training under the same step count.
    """
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
    restarts = []
    for place in np.flatnonzero(ended).tolist():
        step = float(rate.step[place + 1])
        start = int(np.searchsorted(loss.step, step))
        if not COMPARED_RECORDS <= start < loss.step.size - COMPARED_RECORDS:
            continue
        low = float(np.median(loss.value[start - COMPARED_RECORDS : start - 1]))
        high = float(loss.value[start - 1 : start + 1].max())
        if (
            high - low > 8 * sigma
            and fit_robust_trend(Curve(loss.step[start:], loss.value[start:])).z < -1.6
        ):
            rise = f"the loss from {low:.4g} to {high:.4g}"
            text = (
                f"the learning rate jumps from its end to {rate.value[place + 1]:.3g}, and {rise}"
            )
            restarts.append(Restart(step, "run", text))
    return restarts
