"""The learning rate was still rising when the run ended: its warm-up is longer than the run.

## What it does
Checks whether `learning_rate` grows in proportion to the step up to the last one. If a hand-written loop prints the
share of the peak instead (`lrm`, `lr_mult`), it checks that. A run that has not come to its last step yet (`max_steps`)
is not reported, nor is one with fewer than ten steps or one that reached the configured learning rate (if the log, or a
command that it prints, contains it). If the log shows neither how many steps were planned nor the trainer's summary at
the end, the run may continue: then it is a warning after 500 steps or one epoch, else info.

## Why it is bad
The configured learning rate is never reached. With `warmup_steps=500` copied from a long run, a run of forty steps
trains with at most 8 % of it, and the adapter hardly changes.

## Example
```yaml
curve:
  loss: {from: 2.0, to: 1.98, steps: 40, noise: 0.02}
  learning_rate: {from: 2.0e-7, to: 8.0e-6, steps: 40}
state: {max_steps: 40}
```

## Use instead
```yaml
curve:
  loss: {from: 2.0, to: 1.5, steps: 40, noise: 0.02}
  learning_rate: {values: [0, 1.0e-4, 9.0e-5, 7.0e-5, 5.0e-5, 3.0e-5, 1.0e-5], steps: 40}
state: {max_steps: 40}
```

## Fix safety
`warmup_steps=0.03` (a share of the run in transformers 5; `warmup_ratio` before) fits runs of any length. Training then
uses the full learning rate that was set.

## References
- salesforce/LAVIS#72; warm-up: Goyal et al. 2017, arXiv 1706.02677
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.count_optimizer_steps import has_run_ended
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.rule import LogRule
from truetune.logs.facts_in_files_beside_log import WARMUP_STEPS, SettingBeside
from truetune.logs.robust_statistics import warmup_slope
from truetune.logs.run_log import Curve
from truetune.settings.run_spec import Severity

# Chosen, not measured: warm-ups in use are 20 to 300 steps, or 3 to 10 % of a run, so that one of so many belongs to a
# run of 5,000 and more.
MIN_LONG_STEPS = 500
"""Steps of a rising rate from which the warm-up is too long even where nothing says that the run is over"""
MULTIPLIER = "learning_rate_multiplier"
WHOLE = 0.99
"""Share of the peak rate that is the peak, as logs round it"""
TRIAL = 10
"""Fewer steps only try whether it runs. Chosen, not measured: at double, short real runs on few rows are left out"""


class LearningRateNeverPeaked(LogRule):
    code = "LOG011"
    fault = Fault.WARMUP_WRONG
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    needs = ("learning_rate",)
    least = 3

    def unmet(self) -> Unmet | None:
        """Also unmet where the run is a trial, or has not come to its last step."""
        # Where the rate itself is not logged, its share of the peak tells the same.
        unmet = None if self._name_of_rate_curve == MULTIPLIER else super().unmet()
        if unmet is not None:
            return unmet
        rate = self.subject.curve(self._name_of_rate_curve).finite()
        if rate.step[-1] < TRIAL and not self._configured_peak_rate():
            return Unmet(
                f"fewer than {TRIAL} steps only try whether it runs", "name the log of a longer run"
            )
        if self._has_more_steps_planned(rate):
            return Unmet("the run has not come to its last step", "name its log when it has ended")
        return None

    @property
    def _name_of_rate_curve(self) -> str:
        """The curve of the rate, or of its share of the peak where the log has that alone."""
        log = self.subject
        has_rate = bool(log.curve("learning_rate").finite())
        has_share = log.curve(MULTIPLIER).finite().step.size >= self.least
        return MULTIPLIER if has_share and not has_rate else "learning_rate"

    def measurement_if_clean(self) -> str:
        """The highest learning rate with its step, and the last one."""
        rate = self.subject.curve(self._name_of_rate_curve).finite()
        top = int(np.argmax(rate.value))
        return (
            f"the learning rate is highest at step {rate.step[top]:,.0f} of {rate.step[-1]:,.0f}"
            f" with {rate.value[top]:.3g}, and {rate.value[-1]:.3g} at the end"
        )

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        rate = log.curve(self._name_of_rate_curve).finite()
        configured = self._configured_peak_rate()
        slope = self._slope_at_end_of_ended_run(rate, configured)
        if slope is None:
            return
        peak = float(rate.value[-1])
        # a warm-up that ends with the last step has come to its peak; logged rates are rounded
        if configured and peak > 0.99 * configured:
            return
        of_configured = (
            f", {peak / configured:.0%} of the configured {configured:g}" if configured else ""
        )
        unit = "record" if log.is_numbered else "step"
        is_over = bool(log.planned_steps) or has_run_ended(log)
        last = f"the last {unit} ({rate.step[-1]:,.0f})"
        # The last steps may fall between two records.
        if not log.is_numbered and log.last_step > rate.step[-1]:
            last = f"step {rate.step[-1]:,.0f}, the last one logged of {log.last_step:,.0f}"
        warmup = self._too_long_warmup_beside()
        why = self._reason_for_rise(peak, warmup)
        yield self.finding(
            f"the learning rate is still rising at {last}: it reached {peak:.3g}{of_configured}; {why}",
            ("" if is_over else "if the run is over: ")
            + "set the warm-up (warmup_steps; warmup_num_steps of a DeepSpeed scheduler, warmup_ratio as a share) to"
            " about 3 % of the steps of the run",
            severity=self._severity(rate, is_over=is_over),
            evidence=tuple(self._evidence(rate, slope, unit)),
            cases=tuple(self._cases(rate, unit, warmup)),
            figure=draw_curves("learning rate", {"learning_rate": rate}),
        )

    def _reason_for_rise(self, peak: float, warmup: SettingBeside | None) -> str:
        """Why the rate still rises at the end, as far as the log and the settings beside it say."""
        if warmup is not None:
            return f"the warm-up of {warmup.value:,} steps ({warmup.place}) is longer than the run"
        if self._name_of_rate_curve == MULTIPLIER and peak >= WHOLE:
            return (
                "the decay runs backwards (progress instead of 1 - progress), or the warm-up is"
                " as long as the run"
            )
        return "the warm-up is longer than the run"

    def _too_long_warmup_beside(self) -> SettingBeside | None:
        """The warm-up that settings beside the log set, where it is longer than the run; None for
        any other.
        """
        setting_beside = self.subject.files_beside.setting(WARMUP_STEPS)
        is_counted = not self.subject.is_numbered
        is_longer = (
            setting_beside is not None
            and isinstance(setting_beside.value, int)
            and is_counted
            and setting_beside.value > max(self.subject.last_step, self.subject.planned_steps or 0)
        )
        return setting_beside if is_longer else None

    def _cases(self, rate: Curve, unit: str, warmup: SettingBeside | None) -> Iterator[Case]:
        """The log, which may be one of several, and the setting that makes the warm-up so long."""
        log = self.subject
        yield Case(f"{unit} {rate.step[-1]:,.0f}: {rate.value[-1]:.3g}", file=log.path)
        if warmup is not None:
            yield Case(warmup.text, file=warmup.file, line=warmup.line)

    def _severity(self, rate: Curve, *, is_over: bool) -> Severity:
        """An error in a run that is over; a warning where so much was logged that its rate should have come."""
        if is_over:
            return "error"
        is_counted = not self.subject.is_numbered
        is_long = self.subject.epochs_at_end >= 1 or (
            is_counted and rate.step[-1] >= MIN_LONG_STEPS
        )
        return "warning" if is_long else "info"

    def _slope_at_end_of_ended_run(self, rate: Curve, configured: float | None) -> float | None:
        """How fast the rate rises per step at the end of a run that is over; None where it does not
        rise, or the run is a trial.
        """
        if not rate or (rate.step[-1] < TRIAL and not configured):
            return None
        # the slope first: it is None below three records, which have no usual distance
        slope = warmup_slope(rate, is_rounded=self._name_of_rate_curve == MULTIPLIER)
        return None if slope is None or self._has_more_steps_planned(rate) else slope

    def _has_more_steps_planned(self, rate: Curve) -> bool:
        """Are more steps planned than were made? The last ones may fall between two records, or be
        cut off.
        """
        total = self.subject.planned_steps
        if not total:
            return False
        return self.subject.last_step + 2 * float(np.median(np.diff(rate.step))) <= total

    def _configured_peak_rate(self) -> float | None:
        """The peak that the log's facts or the printed command set; None where neither does."""
        output = self.subject.output
        printed = output.settings.learning_rate if output is not None else None
        return self.subject.fact_as_number("learning_rate") or printed

    def _evidence(self, rate: Curve, slope: float, unit: str) -> Iterator[str]:
        """Evidence: how fast the rate grows, and the warm-up that the command sets, where it is as
        long as the run.
        """
        yield (
            f"it grows by {slope:.3g} per {unit} from {rate.value[0]:.3g} at {unit}"
            f" {rate.step[0]:,.0f}"
        )
        output = self.subject.output
        if output is None:
            return
        warmup = output.settings.warmup_steps
        total = self.subject.planned_steps or output.settings.steps or output.total
        if warmup and total and warmup >= total:
            yield f"the command sets a warm-up of {warmup:,} steps, but the run has {total:,.0f} steps"
