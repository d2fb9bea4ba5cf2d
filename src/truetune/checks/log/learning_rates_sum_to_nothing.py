"""The learning rates of all steps sum to so little that no weight can change noticeably.

## What it does
Adds up the learning rates of all steps (a logged one counts for each step up to its record). A step of Adam moves a
weight by about the learning rate, so the sum is the furthest that any weight can move. It warns below 3e-6 if the run
ended after 10 steps or more, or made 50 steps and its learning rate no longer rises. If more steps are planned, those
count at the highest learning rate. A learning rate of 0 at every record belongs to `learning-rate-ended-early` and
`flat-loss`.

## Why it is bad
Weights of language models have a size of about 0.02. The run costs its time, but the model answers as its base does. If
the loss still falls, the weights are trained with another learning rate than the logged one: trainers log only
that of the first parameter group.

## Example
```yaml
curve:
  loss: {from: 2.0, to: 1.4, steps: 100, noise: 0.02}
  learning_rate: {values: [0, 2.0e-11, 1.5e-11, 1.0e-11, 0.5e-11], steps: 100}
state: {max_steps: 100}
```

## Use instead
```yaml
curve:
  loss: {from: 2.0, to: 1.4, steps: 100, noise: 0.02}
  learning_rate: {values: [0, 2.0e-5, 1.5e-5, 1.0e-5, 0.5e-5], steps: 100}
state: {max_steps: 100}
```

## Fix safety
There is no automatic fix: set a usual `learning_rate`, such as 1e-5 for full fine-tuning and 1e-4 for LoRA. The limit
holds for SGD too: it moves a weight by learning rate times gradient, and nearly all gradients are below 1.

## References
- Kingma and Ba 2015, arXiv:1412.6980, section 2.1: the step of Adam is bounded by about the rate
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.count_optimizer_steps import FEW, has_run_ended
from truetune.checks.does_log_show_weights_moved import have_weights_moved
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.rule import LogRule
from truetune.logs.robust_statistics import is_falling, warmup_slope
from truetune.logs.run_log import Curve

MAX_SUM = 3e-6
"""Sum of rates below which nothing changes. An output of a layer adds 4,096 weights: all moved by 3e-6, and the same
way, they move it by 0.012, 1 % of its usual size of 0.02 * sqrt(4096) = 1.3. Of 317 logs with rates in this project's
tests and benches, and 49 public ones, the lowest sum of a run that learned is 2e-5 (DPO, 15 steps), and the highest of
a broken one 2.3e-7"""
MIN_STEPS = 50
"""Steps from which a log counts as one of a run where nothing says that it ended. Chosen, not measured: at half, a
warm-up of 1,000 steps to 1e-5 is not yet beyond the limit"""


class LearningRatesSumToNothing(LogRule):
    code = "LOG173"
    fault = Fault.LEARNING_RATE_TOO_HIGH_OR_LOW
    symptoms = ("nothing-is-learned", "loss-does-not-fall", "dpo-without-effect")
    severity = "warning"
    needs = ("learning_rate",)
    moot_where = (
        "flat-loss",
        "dpo-stuck-at-ln2",
        "learning-rate-never-peaked",
        "learning-rate-ended-early",
    )

    def unmet(self) -> Unmet | None:
        """Also unmet where the rates are all 0, or the log is not of a whole run."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if self.subject.is_numbered:
            return Unmet(
                "its records say no step, so it is not known how many each counts", "log the step"
            )
        rate = self.subject.curve("learning_rate").finite()
        if not rate or rate.value.max() <= 0:
            return Unmet("the learning rate is 0 throughout, which other rules are about")
        if not self._can_curve_stand_for_whole_run(rate):
            return Unmet(
                f"the log is of fewer than {MIN_STEPS} steps ({FEW} of a run that ended), or its rate still rises",
                "name the log of a run that has ended",
            )
        return None

    def measurement_if_clean(self) -> str:
        """The sum of the learning rates over all steps."""
        rate = self.subject.curve("learning_rate").finite()
        return f"the learning rates sum to {self._sum_over_all_steps(rate):.3g} over {rate.step[-1]:,.0f} steps"

    def findings(self) -> Iterator[Finding]:
        if self.unmet() is not None:
            return
        rate = self.subject.curve("learning_rate").finite()
        total = self._sum_over_all_steps(rate)
        if total >= MAX_SUM:
            return
        has_learned = self._has_learned()
        yield self.finding(
            f"the learning rates of all {rate.step[-1]:,.0f} steps sum to {total:.2g}, and no weight moves further than"
            " that, although weights have a size of about 0.02"
            + (
                "; the loss still changes, so the weights are trained with another learning rate than the"
                " logged one"
                if has_learned
                else ""
            ),
            "raise learning_rate: SFT starts at 1e-5 in full fine-tuning and at 1e-4 with LoRA, DPO at 5e-7 and 5e-6"
            + (
                "; also log the learning rate of each parameter group, since trainers log only the first"
                if has_learned
                else ""
            ),
            evidence=(f"the highest learning rate is {rate.value.max():.3g}",),
            figure=draw_curves("learning rate", {"learning_rate": rate}),
        )

    def _has_learned(self) -> bool:
        """Does the loss fall, or another figure of the model change, as only weights that move do?"""
        loss = self.subject.curve("loss").finite()
        falls = self.subject.kind == "language" and is_falling(loss)
        return falls or have_weights_moved(self.subject)

    def _sum_over_all_steps(self, rate: Curve) -> float:
        """The rates of all steps added; steps that are planned and not made count at the highest rate."""
        steps = np.diff(rate.step, prepend=0.0)
        left = max(0.0, (self.subject.planned_steps or 0.0) - float(rate.step[-1]))
        still_to_come = 0.0 if has_run_ended(self.subject) else left * float(rate.value.max())
        return float((rate.value * steps).sum()) + still_to_come

    def _can_curve_stand_for_whole_run(self, rate: Curve) -> bool:
        """Has the run ended, and was it no trial, or does it run for long at a rate that rises no more?"""
        if has_run_ended(self.subject):
            return float(rate.step[-1]) >= FEW
        return float(rate.step[-1]) >= MIN_STEPS and warmup_slope(rate) is None
