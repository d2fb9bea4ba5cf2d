"""The learning rate stays constant under a schedule that decays, or leaps up in the middle of the run.

## What it does
Reads `learning_rate`, and `lr_scheduler_type` where the log or the settings beside it contain it. It warns if

- the schedule is `linear`, `cosine` or another one that decays over the whole run, and the rate is the same from the
  warm-up on, over half of the planned steps and 20 records or more;
- the rate is at its plateau or falls, and then, from one record to the next, is 1.5 times its highest value so far or
  more. Restarts go back to the peak and not above it, and are not reported.

## Why it is bad
A rate that stays at its peak means that `scheduler.step()` is never called, or that another schedule is in force: the
last steps are as large as the first, and the loss ends higher. A leap comes from a checkpoint that was resumed with
another learning rate, batch size or number of processes, or from code that sets the rate: the weights are pushed off
what they had learned.

## Example
```yaml
curve:
  loss: {from: 2.0, to: 1.4, steps: 60, noise: 0.02}
  learning_rate: {values: [2.0e-4, 1.8e-4, 1.6e-4, 1.4e-4, 1.2e-4, 9.0e-4, 6.0e-4, 3.0e-4, 1.0e-4], steps: 9}
```

## Use instead
```yaml
curve:
  loss: {from: 2.0, to: 1.4, steps: 60, noise: 0.02}
  learning_rate: {values: [2.0e-4, 1.8e-4, 1.6e-4, 1.4e-4, 1.2e-4, 1.0e-4, 6.0e-5, 3.0e-5], steps: 8}
```

## Fix safety
There is no automatic fix. Two stages that are meant to have different rates belong in two logs.

## References
- huggingface/transformers#34053 (rates after a resume)
- pytorch.org/docs/stable/optim.html ("How to adjust learning rate")
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.rule import LogRule
from truetune.logs.run_log import Curve

DECAYING = frozenset(("linear", "cosine", "polynomial", "inverse_sqrt", "cosine_with_min_lr"))
"""Schedules of transformers that fall from the end of the warm-up on"""
MIN_POINTS = 8
"""Records of a rate that leaps. Chosen by hand: fewer hardly show where the warm-up ends"""
MIN_CONSTANT = 20
"""Records with one rate. Chosen, not measured: a cosine hardly moves in the first few of a long run"""
MIN_CONSTANT_SHARE = 0.5
"""Of the planned steps: a cosine has lost half of its rate by then, a line too"""
SAME = 1e-3
"""Share within which rates are one: logs round them to four digits and more"""
LEAP = 1.5
"""Times the highest rate so far. Chosen, not measured: logs may leave the very peak of a warm-up out, which is near"""
BEFORE = 4
"""Records before a leap in which the rate did not rise: so it was no warm-up"""


class LearningRateLeavesItsSchedule(LogRule):
    code = "LOG197"
    fault = Fault.SCHEDULE_LENGTH_OR_DIRECTION_WRONG
    severity = "warning"
    symptoms = ("loss-does-not-fall", "odd-metrics")
    needs = ("learning_rate",)
    least = MIN_POINTS
    moot_where = ("learning-rate-ended-early", "resume-starts-fresh")

    def measurement_if_clean(self) -> str:
        """The highest and the last rate."""
        rate = self.subject.curve("learning_rate").finite().value
        return (
            f"the learning rate is {rate.max():.3g} at most, and {rate[-1]:.3g} at the last record"
        )

    def findings(self) -> Iterator[Finding]:
        """The finding on a rate that is constant, or else on its first leap."""
        if self.unmet() is not None:
            return
        rate = self.subject.curve("learning_rate").finite()
        schedule = str(self.subject.facts.get("lr_scheduler_type") or "").rpartition(".")[2].lower()
        if schedule in DECAYING and self._is_constant(rate):
            yield self._finding_on_constant_rate(rate, schedule)
            return
        place = _place_of_leap(rate.value)
        if place is not None:
            yield self._finding_on_leap(rate, place)

    def _is_constant(self, rate: Curve) -> bool:
        """Does the rate stay at its peak to the end, over half of the steps that were planned?"""
        peak = float(rate.value.max())
        at_peak = np.abs(rate.value - peak) <= SAME * peak
        if peak <= 0 or not at_peak[-1] or int(at_peak.sum()) < MIN_CONSTANT:
            return False
        first = int(np.argmax(at_peak))
        planned = self.subject.planned_steps or float(rate.step[-1])
        span = float(rate.step[-1] - rate.step[first])
        return bool(at_peak[first:].all()) and span >= MIN_CONSTANT_SHARE * planned

    def _finding_on_constant_rate(self, rate: Curve, schedule: str) -> Finding:
        """The finding on a rate that does not decay."""
        return self.finding(
            f"the learning rate stays at {rate.value[-1]:.3g} up to {self.subject.unit_of_steps}"
            f" {rate.step[-1]:,.0f}, although lr_scheduler_type is {schedule}: the schedule is not in force",
            "call scheduler.step() once per optimizer step; with the Trainer, check what replaces its schedule (an"
            " overridden create_scheduler, a scheduler of the DeepSpeed file, a callback that sets the rate)",
            total=int(rate.step.size),
            figure=draw_curves("learning rate", {"learning_rate": rate}),
        )

    def _finding_on_leap(self, rate: Curve, place: int) -> Finding:
        """The finding on a rate that leaps above all that were before."""
        unit = self.subject.unit_of_steps
        return self.finding(
            f"the learning rate leaps from {rate.value[place - 1]:.3g} to {rate.value[place]:.3g} at {unit}"
            f" {rate.step[place]:,.0f}, above its highest value until then ({rate.value[:place].max():.3g})",
            "if the run was resumed there, give it the settings that it began with (learning_rate, batch size,"
            " processes, steps); else find what sets the rate of the optimizer there",
            total=int(rate.step.size),
            figure=draw_curves(
                "learning rate", {"learning_rate": rate}, {"leap": float(rate.step[place])}
            ),
        )


def _place_of_leap(rates: np.ndarray[tuple[int], np.dtype[np.float64]]) -> int | None:
    """The first record with a rate far above all before, where the rate did not rise; None without one."""
    for place in range(BEFORE, rates.size):
        before = rates[place - BEFORE : place]
        if before[-1] <= 0 or np.any(np.diff(before) > 0):
            continue
        if rates[place] >= LEAP * rates[:place].max():
            return place
    return None
