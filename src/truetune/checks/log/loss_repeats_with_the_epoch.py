"""The loss takes the same course in each epoch: the rows come in the same order every time.

## What it does
Compares the whole epochs of a run with each other, each without its level, slope and curvature. It fires if each epoch
correlates with the one before (0.6 and more, over 20 records at least) and the common course spans 10 % of the level:
the rows came in the same order. It warns if the course is smooth, as blocks of similar rows make it, and reports as
info if single batches repeat. It also warns if the loss goes one way within each of three epochs and back at its end,
as sorted rows make it. A learning rate that restarts, and batches grouped by length, are recognised and not reported.

## Why it is bad
Rows in the order of their file are mostly sorted: by task, source, length or date. Each block is trained by itself, the
loss jumps at the start of the next, and what the block before taught is partly forgotten. The jumps look like a
learning rate that is too high, but a lower one does not help.

## Example
```yaml
curve:
  loss: {values: [2.0, 1.1, 1.9, 0.9, 1.9, 1.0, 1.8, 0.8, 1.9, 1.0, 1.8, 0.8, 1.8], steps: 121, noise: 0.02}
  epoch: {from: 0.0, to: 3.0, steps: 121}
```

## Use instead
```yaml
curve:
  loss: {from: 2.0, to: 0.8, steps: 121, noise: 0.2}
  epoch: {from: 0.0, to: 3.0, steps: 121}
```

## Fix safety
Shuffling changes no row, only their order. If you want the same order in each epoch (a curriculum), keep it.

## References
- PyTorch documentation, `DataLoader(shuffle=...)` (False by default) and `DistributedSampler.set_epoch`
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.rule import LogRule
from truetune.logs.detect_resumes_without_state import find_restarts
from truetune.logs.periodic_events import (
    GROUPED_STEPS,
    STRETCHES_OF_SHORT_EPOCH,
    USUAL_PROCESS_COUNTS,
    may_group_by_length,
)
from truetune.logs.robust_statistics import noise_sigma
from truetune.logs.run_log import Curve, Floats, RunLog

MIN_RECORDS = 20
"""Records of an epoch. Chosen: epochs of independent rows are alike to 0.6 once in a thousand pairs of 20 records"""
MAX_RECORDS = 200
"""Records of an epoch that are compared: more are averaged"""
ALIKE = 0.6
"""Correlation of each epoch with the one before"""
ALIKE_TWICE = 0.75
"""The same where there are two epochs, and so one pair"""
MIN_SWING = 0.1
"""Of the level, from the 10th to the 90th percentile of what all epochs have in common"""
SMOOTH = 0.5
"""Correlation of neighbouring records from which blocks of like rows make the course, and not single batches"""
RATE_SWING = 0.3
"""Of the highest learning rate: one that swings by more in each epoch may make the loss swing"""
CHANCES = 4.0
"""Times the chance by which a turn at the end of an epoch has to pass"""
GROUPED_LOSS, ROUNDING_LOSS = 1.5, 0.01
"""How far the stretches of an epoch that is grouped by length may be from a correlation of 1, in times of the distance
of its epochs, and a little for stretches that are no whole number of records. Both are draws of one course, and the
stretches are compared on the mean of all epochs: of 198 simulated runs (30 to 420 steps, noise of 1 to 5 %) none was
further. Blocks of other rows are less alike than the same rows in the next epoch"""
LEAP = 0.5
"""Of the swing, that one record in a smooth course leaps upwards where a block begins"""


class _EpochCourse(NamedTuple):
    """What the epochs of a run have in common."""

    epochs: int
    records: int
    """Of an epoch, as they are compared"""
    steps: float
    """Of an epoch"""
    alike: float
    """The lowest correlation of an epoch with the one before"""
    swing: float
    """Of the level"""
    is_smooth: bool
    leaps: tuple[float, ...]
    """Where in the epoch it leaps upwards, as shares of it"""
    turns: float
    """By how much of the level the loss goes one way in each epoch, and back at its end"""
    profile: Floats


class LossRepeatsWithTheEpoch(LogRule):
    code = "LOG081"
    fault = Fault.ROWS_IN_FIXED_ORDER
    symptoms = ("loss-does-not-fall", "odd-metrics")
    severity = "warning"
    moot_where = ("loss-repeats-exactly",)
    kinds = ("language", "preference", "reward")
    needs = ("loss", "epoch")
    least = 2 * MIN_RECORDS

    def unmet(self) -> Unmet | None:
        """Also unmet without two whole epochs of enough records."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if self._epoch_course() is None:
            return Unmet(f"it compares two whole epochs of {MIN_RECORDS} records at least")
        return None

    def measurement_if_clean(self) -> str:
        """How alike the epochs are, as a correlation."""
        course = self._epoch_course()
        assert course is not None, "else the rule is not judged"
        return (
            f"{course.epochs} epochs of {course.steps:,.0f} steps are alike to {course.alike:.2f}"
        )

    def findings(self) -> Iterator[Finding]:
        log, course = self.subject, self._epoch_course()
        if course is None or log.kind not in self.kinds:
            return
        if not _goes_one_way_in_each_epoch(course) and not _are_epochs_alike(course):
            return
        if _rate_restarts(log) or find_restarts(log) or _may_be_grouped_by_length(log, course):
            return
        yield self.finding(
            f"the loss takes the same course in each epoch, every {course.steps:,.0f} steps: the rows come in the same"
            f" order each time{_describe_row_order(course)}",
            "shuffle the rows in each epoch: DataLoader(shuffle=True), with a DistributedSampler call"
            " set_epoch(epoch), and remove a sequential sampler or shuffle: false from the settings; a lower learning"
            " rate does not help",
            severity="warning"
            if course.is_smooth or _goes_one_way_in_each_epoch(course)
            else "info",
            evidence=[
                f"{course.epochs} epochs of {course.steps:,.0f} steps correlate by {course.alike:.2f} (0 is chance),"
                f" and the common course spans {max(course.swing, course.turns):.0%} of the loss",
                "the learning rate does not restart with this period",
            ],
            figure=draw_curves("loss", {"loss": log.curve("loss").finite()}),
        )

    def _epoch_course(self) -> _EpochCourse | None:
        """What the epochs have in common; None where there are not enough of them."""
        return measure_epoch_course(self.subject, self.subject.curve("loss").finite())


def measure_epoch_course(log: RunLog, curve: Curve) -> _EpochCourse | None:
    """What the whole epochs of a curve have in common; None where there are fewer than two, or too few records."""
    epochs = _values_by_whole_epoch(log, curve)
    if epochs is None:
        return None
    values, steps = epochs
    level = float(np.median(np.abs(values)))
    centred = np.array([_without_trend(row) for row in values])
    alike = min(_correlation(one, other) for one, other in pairwise(centred))
    profile = centred.mean(axis=0)
    swing = float(np.percentile(profile, 90) - np.percentile(profile, 10))
    return _EpochCourse(
        epochs=len(values),
        records=values.shape[1],
        steps=steps,
        alike=alike,
        swing=swing / level if level else 0.0,
        is_smooth=_correlation(profile[1:], profile[:-1]) >= SMOOTH,
        leaps=_upward_leap_positions(profile, swing),
        turns=_one_way_change_within_epochs(values, level),
        profile=profile,
    )


def _describe_row_order(course: _EpochCourse) -> str:
    """How the rows seem to be ordered; empty where the course does not say it."""
    if _goes_one_way_in_each_epoch(course) and not _are_epochs_alike(course):
        return ", sorted (it goes one way within each epoch, and back at its end)"
    if not course.is_smooth or not course.leaps:
        return ""
    places = ", ".join(f"{share:.0%}" for share in course.leaps)
    return f", in blocks of similar rows (the loss jumps at {places} of the epoch)"


def _goes_one_way_in_each_epoch(course: _EpochCourse) -> bool:
    """Does the loss go one way within each epoch, and by as much that it matters?"""
    return course.turns >= MIN_SWING and course.epochs > 2


def _are_epochs_alike(course: _EpochCourse) -> bool:
    """Are the epochs alike by more than chance, and by as much that it matters?"""
    return (
        course.alike >= (ALIKE if course.epochs > 2 else ALIKE_TWICE) and course.swing >= MIN_SWING
    )


def _values_by_whole_epoch(log: RunLog, curve: Curve) -> tuple[Floats, float] | None:
    """A curve's values, one row for each whole epoch on a grid of their own, and the steps of an
    epoch.
    """
    steps = _steps_per_epoch(log)
    if steps <= 0 or curve.step.size < 2 * MIN_RECORDS:
        return None
    origin = float(curve.step[0])
    position = (curve.step - origin) / steps
    # The last epoch may lack a record or two that were not logged.
    count = math.floor(
        float(position[-1]) + 1.5 / max(1.0, curve.step.size / max(position[-1], 1e-9))
    )
    records = min(MAX_RECORDS, int(np.sum(position < 1)))
    if count < 2 or records < MIN_RECORDS:
        return None
    # Records of long epochs are averaged in equal parts; those of short ones stand for themselves.
    edges = np.arange(count * records + 1) / records
    part = np.clip(
        np.searchsorted(edges, position + 1e-6, side="right") - 1, 0, count * records - 1
    )
    inside = position < count
    sums = np.bincount(part[inside], weights=curve.value[inside], minlength=count * records)
    sizes = np.bincount(part[inside], minlength=count * records)
    filled = np.flatnonzero(sizes)
    if filled.size < 0.8 * sizes.size:
        return None
    means = np.interp(np.arange(sizes.size), filled, sums[filled] / sizes[filled])
    return means.reshape(count, records), steps


def _steps_per_epoch(log: RunLog) -> float:
    """Steps of one epoch, by the logged epochs; 0 where the epochs do not advance."""
    epoch = log.curve("epoch").finite()
    if not epoch or epoch.step.size < 2:
        return 0.0
    numbers = np.unique(epoch.value)
    if np.array_equal(numbers, np.round(numbers)) and numbers.size > 1:
        # Whole numbers: the first steps of the epochs stand one epoch apart.
        firsts = [float(epoch.step[epoch.value == number][0]) for number in numbers]
        return float(np.median(np.diff(firsts)))
    passed = float(np.ptp(epoch.value))
    return float(np.ptp(epoch.step)) / passed if passed > 0 else 0.0


def _without_trend(values: Floats) -> Floats:
    """Values without their level, slope and bend: each epoch falls, the first ones steeply, whatever the rows are."""
    place = np.linspace(-1, 1, values.size)
    rest: Floats = values - np.polyval(np.polyfit(place, values, 2), place)
    return rest


def _one_way_change_within_epochs(values: Floats, level: float) -> float:
    """By how much of the level the loss goes one way within each epoch and back at its ends; 0 where it doesn't.

    Rows that are sorted by length or difficulty make a slope within the epoch, and it leaves no course of its own.
    """
    fifth = max(4, values.shape[1] // 5)
    begins, ends = np.median(values[:, :fifth], axis=1), np.median(values[:, -fifth:], axis=1)
    within, between = ends - begins, begins[1:] - ends[:-1]
    ways = np.sign(within)
    if not np.all(ways == ways[0]) or not np.all(np.sign(between) == -ways[0]):
        return 0.0
    noise = max(noise_sigma(row) for row in values)
    least = min(float(np.abs(within).min()), float(np.abs(between).min()))
    # Medians of so many records differ by chance; four times that is none.
    chance = CHANCES * 1.25 * noise * math.sqrt(2 / fifth)
    return least / level if level and least > chance else 0.0


def _correlation(one: Floats, other: Floats) -> float:
    """Pearson's r; 0 where one of them is flat."""
    spread = float(one.std() * other.std())
    return (
        float(((one - one.mean()) * (other - other.mean())).mean()) / spread if spread > 0 else 0.0
    )


def _upward_leap_positions(profile: Floats, swing: float) -> tuple[float, ...]:
    """Where the common course leaps upwards from one record to the next but one, as shares of the
    epoch.
    """
    rises = profile[2:] - profile[:-2]
    places = [
        place
        for place in np.flatnonzero(rises > LEAP * swing)
        if rises[place] >= rises[max(0, place - 2) : place + 3].max()
    ]
    return tuple((int(place) + 1) / profile.size for place in places)


def _rate_restarts(log: RunLog) -> bool:
    """Does the learning rate leap up again after its first peak? Such a schedule makes the loss swing by itself."""
    rate = log.curve("learning_rate").finite().value
    if rate.size < 3:
        return False
    peak = float(rate.max())
    fallen = np.flatnonzero(rate < (1 - RATE_SWING) * peak)
    reached = int(np.argmax(rate > (1 - RATE_SWING) * peak))
    behind = fallen[fallen > reached]
    if not behind.size:
        return False
    tail = rate[behind[0] :]
    rises = tail - np.minimum.accumulate(tail)
    return float(rises.max()) > RATE_SWING * peak


def _may_be_grouped_by_length(log: RunLog, course: _EpochCourse) -> bool:
    """May batches that are grouped by length make the course: does it repeat within the epoch as
    those do?
    """
    if not may_group_by_length(log):
        return False
    periods = [GROUPED_STEPS / count for count in USUAL_PROCESS_COUNTS]
    # Only a short epoch is sorted in four stretches; a longer one in stretches of fewer steps than a quarter.
    if course.steps < GROUPED_STEPS * STRETCHES_OF_SHORT_EPOCH:
        periods.append(course.steps // STRETCHES_OF_SHORT_EPOCH)
    a_record = course.steps / course.records
    # Stretches that are no whole number of records are more like one of the next four.
    distances = [times * period / a_record for period in periods for times in range(1, 5)]
    lags = {
        whole for distance in distances for whole in (math.floor(distance), math.ceil(distance))
    }
    least = max(ALIKE, 1 - ROUNDING_LOSS - GROUPED_LOSS * (1 - course.alike))
    return any(
        _correlation(course.profile[lag:], course.profile[:-lag]) > least
        for lag in lags
        if 2 <= lag <= course.records // 2
    )
