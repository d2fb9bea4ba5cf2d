"""The learning rate reached 0 long before the run ended.

## What it does
Measures how long the learning rate stays at its final value of zero (below a millionth of the peak). A tenth of the run
or more is an error. If a file beside the log builds a schedule with that many steps (`total_num_steps` of DeepSpeed,
`T_max`, `num_training_steps`), its line is named. It warns if a learning rate that came down to nothing climbs again
without a jump, as a cosine does that is stepped past its end. It also warns if that repeats every few steps, as with a
`T_max` in epochs that is stepped at every step.

Schedules that restart with a jump, fall once to a floor above zero, or go up and down in straight lines (fewer than ten
times) are not reported. In preference training, reward models and reinforcement learning, a learning rate of 0 at every
record is an error too; for language models `flat-loss` reports it.

## Why it is bad
Nothing is learned in that part of the run. In a hand-written loop, `accelerator.prepare(scheduler)` steps the schedule
once per process for each optimizer step, so on four GPUs it is over after a quarter of the run.

## Example
```yaml
curve:
  learning_rate: {values: [1.0e-4, 0, 0, 0, 0], steps: 80}
```

## Use instead
```yaml
curve:
  learning_rate: {values: [1.0e-4, 0], steps: 80}
```

## Fix safety
Build the schedule with `num_training_steps = steps * accelerator.num_processes`, or do not pass it to
`accelerator.prepare`. The learning rate is then higher in the rest of the run.

## References
- huggingface/transformers#24088, huggingface/accelerate#2926, huggingface/accelerate#1382
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.log.evidence.bounds_of_loss_and_rate import IDLE_RATE
from truetune.checks.log.evidence.swings_of_learning_rate import RateSwings, find_swings
from truetune.checks.rule import LogRule
from truetune.logs.facts_in_files_beside_log import SCHEDULE_STEPS, SettingBeside
from truetune.logs.run_log import Curve

MIN_POINTS, MIN_ZEROS = 8, 3
"""Records with a rate, and those of them with a rate of 0. Chosen by hand: one or two zeros at the end are those of a
schedule that ends by right"""
# Of the records. Chosen, not measured: the last record of many schedules is 0 by right, and a short run has few others.
MIN_IDLE_SHARE = 0.1
STRAIGHT = 1.2
"""Steepest over median slope; 1 of triangles, which are planned, 1.4 of a cosine"""
STEP_ONCE = (
    "call scheduler.step() once per optimizer step (right after optimizer.step(), not in each accumulated batch), and"
    " build the schedule with the number of optimizer steps of the whole run"
)
POWERS = (2, 4, 8, 16, 32, 64)
"""How often a schedule is stepped in an optimizer step, where nothing says how often: accumulation or processes"""
LEAP = 3.0
"""A first rise so many times the usual step is the beginning of another schedule; a cosine begins to climb slowly"""


class LearningRateEndedEarly(LogRule):
    code = "LOG012"
    fault = Fault.SCHEDULE_LENGTH_OR_DIRECTION_WRONG
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    needs = ("learning_rate",)
    least = MIN_POINTS

    def unmet(self) -> Unmet | None:
        """Also unmet where the learning rate is 0 throughout, which flat-loss is about."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        never = self.subject.curve("learning_rate").finite().value.max() <= 0
        return (
            Unmet("the learning rate is 0 throughout, which flat-loss is about") if never else None
        )

    def measurement_if_clean(self) -> str:
        """At how many records the learning rate is 0, and its last value."""
        rate = self.subject.curve("learning_rate").finite()
        idle = int((rate.value <= IDLE_RATE * rate.value.max()).sum())
        return (
            f"the learning rate is 0 at {idle:,} of {rate.step.size:,} records, and"
            f" {rate.value[-1]:.3g} at the last"
        )

    def findings(self) -> Iterator[Finding]:
        rate = self.subject.curve("learning_rate").finite()
        n = rate.step.size
        if n >= MIN_ZEROS and not rate.value.any() and self.subject.kind != "language":
            yield self._finding_on_zero_rate(rate)
        if n < MIN_POINTS or rate.value.max() <= 0:
            return
        peak = float(rate.value.max())
        idle = n - (int(np.flatnonzero(rate.value > IDLE_RATE * peak)[-1]) + 1)
        if idle >= max(3, MIN_IDLE_SHARE * n):
            yield self._finding_on_early_end(rate, idle)
            return
        swings = find_swings(rate.value)
        if swings is not None and swings.has_more_swings_than_planned:
            yield self._finding_on_swings(rate, swings)
            return
        again = self._step_of_restart_near_zero(rate, peak)
        if again is not None:
            yield self._finding_on_second_climb(rate, again)

    def _finding_on_early_end(self, rate: Curve, idle: int) -> Finding:
        """The finding on a rate that is 0 in the last records, of which there are `idle`."""
        n = rate.step.size
        over = float(rate.step[n - idle])
        length = self._schedule_length_beside(rate, n - idle)
        built = f"; {length.place} builds the schedule over that many steps" if length else ""
        return self.finding(
            f"the learning rate is 0 from {self.subject.unit_of_steps} {over:,.0f} of {rate.step[-1]:,.0f} on:"
            f" {idle:,} of {n:,} records train nothing{built}",
            _advise_on_schedule_length(length) if length else STEP_ONCE,
            evidence=(
                f"{length.place}: {length.text}"
                if length
                else self._explain_early_end(rate, n - idle),
            ),
            count=idle,
            total=n,
            figure=draw_curves("learning rate", {"learning_rate": rate}, {"0": over}),
        )

    def _finding_on_second_climb(self, rate: Curve, again: float) -> Finding:
        """The finding on a rate that climbs again from the step at which it had come to nothing."""
        return self.finding(
            f"the learning rate falls to nothing at {self.subject.unit_of_steps} {again:,.0f} of"
            f" {rate.step[-1]:,.0f}, then climbs again: the schedule ran past its end",
            STEP_ONCE,
            severity="warning",
            figure=draw_curves(
                "learning rate", {"learning_rate": rate}, {"end of the schedule": again}
            ),
        )

    def _finding_on_swings(self, rate: Curve, swings: RateSwings) -> Finding:
        """The finding of a rate that falls and climbs again and again."""
        period = swings.period_records * float(np.median(np.diff(rate.step)))
        return self.finding(
            f"the learning rate falls from {rate.value.max():.3g} to {rate.value.min():.3g} and climbs back"
            f" {swings.count:,} times, every {period:,.0f} {self.subject.unit_of_steps}s up"
            f" to {rate.step[-1]:,.0f}: the"
            " schedule runs past its end again and again",
            "give the length of the schedule (T_max of CosineAnnealingLR) in the unit in which it is stepped: the"
            " number of optimizer steps of the whole run if scheduler.step() follows each optimizer.step(), and of"
            " epochs if it is called once per epoch",
            severity="warning",
            count=swings.count,
            figure=draw_curves("learning rate", {"learning_rate": rate}),
        )

    def _finding_on_zero_rate(self, rate: Curve) -> Finding:
        """The finding of a rate of 0 throughout; where the loss shows it (language models),
        `flat-loss` says so.
        """
        return self.finding(
            f"the learning rate is 0 at all {rate.step.size:,} records: nothing is trained",
            "set learning_rate, and check that the schedule is built with the number of steps of the run",
            count=int(rate.step.size),
            total=int(rate.step.size),
            figure=draw_curves("learning rate", {"learning_rate": rate}),
        )

    def _schedule_length_beside(self, rate: Curve, first_idle: int) -> SettingBeside | None:
        """The line beside the log that sets the step at which the rate came to 0; None where none
        does.

        The end lies behind the last record with a rate, and up to the first without. Of a log by
        epochs or seconds no number of steps is known.
        """
        if self.subject.unit_of_steps != "step":
            return None
        last = float(rate.step[first_idle - 1]) if first_idle else 0.0
        first = float(rate.step[first_idle])
        lengths = [
            one
            for one in self.subject.files_beside.settings_named(SCHEDULE_STEPS)
            if isinstance(one.value, int) and last < one.value <= first
        ]
        return min(lengths, key=lambda one: first - float(one.value), default=None)

    def _explain_early_end(self, rate: Curve, first_idle: int) -> str:
        """At which part of the run the schedule ends, and what steps it so often.

        Args:
            rate: the finite learning rates.
            first_idle: index of the first record with a rate of 0.
        """
        total = float(rate.step[-1])
        share = float(rate.step[first_idle]) / total
        # The end lies between two records: of a log of few records, the factor is a range.
        least = total / float(rate.step[first_idle])
        before = float(rate.step[first_idle - 1]) if first_idle else 0.0
        most = total / before if before > 0 else least
        count = round(least)
        if count < 2 or (abs(count * share - 1) >= 0.1 and most - least < 1):
            return f"it ends after {share:.0%} of the run"
        for name, factor in self._factors_of_too_many_scheduler_steps():
            if factor > 1 and least * 0.9 <= factor <= most * 1.1:
                return f"it ends after about 1/{factor} of the run, and there are {factor} {name}: each steps it"
        # Between 5 and 6 lies little: any share is near 1/n. Accumulation and processes are mostly powers of two.
        if not any(least * 0.9 <= power <= most * 1.1 for power in POWERS):
            return f"it ends after {share:.0%} of the run"
        times = f"{count}" if most - least < 1 else f"{count} to {int(most)}"
        return (
            f"it ends after about 1/{count} of the run, as if it was stepped {times} times per optimizer step:"
            " in each accumulated batch, or by each process"
        )

    def _factors_of_too_many_scheduler_steps(self) -> Iterator[tuple[str, int]]:
        """(what, how many) of what may step a schedule too often, as far as settings or output say
        it.
        """
        output = self.subject.output
        printed = output.settings.accumulation if output is not None else None
        accumulation = self.subject.fact_as_number("gradient_accumulation_steps") or printed
        if accumulation:
            yield "accumulated batches in an optimizer step", int(accumulation)
        if output is not None and output.settings.world:
            yield "processes", int(output.settings.world)

    def _step_of_restart_near_zero(self, rate: Curve, peak: float) -> float | None:
        """The step of a minimum near zero from which the rate climbs to a tenth of the peak without
        a jump; None without one.
        """
        top = int(np.argmax(rate.value))
        low = top + int(np.argmin(rate.value[top:]))
        after = rate.value[low:]
        if rate.value[low] > 1e-2 * peak or after.size < 4 or after.max() < 0.1 * peak:
            return None
        jumps = np.abs(np.diff(rate.value[top:]))
        usual = float(np.median(jumps))
        smooth = jumps.max() < 0.3 * peak and jumps.max() > STRAIGHT * usual
        leaps = float(after[1] - after[0]) > LEAP * usual
        return float(rate.step[low]) if smooth and not leaps else None


def _advise_on_schedule_length(length: SettingBeside) -> str:
    """Advice how the schedule becomes as long as the run."""
    return (
        f"set {length.key} ({length.place}) to the number of optimizer steps of the whole run: rows / (batch size x"
        " accumulation x processes) x epochs"
    )
