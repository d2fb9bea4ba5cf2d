"""The learning rate still climbed when the run ended: its warm-up is longer than the run.

## What it does
Looks whether `learning_rate` grows in proportion to the step up to the last one. A run that has not come to its last
step yet (`max_steps`) is left alone, and so is one of fewer than ten steps or one that came to the configured rate,
where that is in the log. Where the log does not say how many steps were planned, it is a note: the run may go on.

## Why it is bad
The rate that was asked for is never used. With `warmup_steps=500` copied from a long run, forty steps train at most
at 8 % of it, and the adapter hardly moves.

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
`warmup_steps=0.03` (a share of the run in transformers 5; `warmup_ratio` before) fits runs of any length.

## References
- salesforce/LAVIS#72; warm-up: Goyal et al. 2017, arXiv 1706.02677
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.drawing import figure
from truetune.checks.rule import LogRule

TRIAL = 10
"""Fewer steps only try whether it runs."""


class LearningRateNeverPeaked(LogRule):
    code = "TT809"
    severity = "error"
    needs = ("learning_rate",)
    least = 3

    def unmet(self) -> Unmet | None:
        if unmet := super().unmet():
            return unmet
        log, rate = self.subject, self.subject.curve("learning_rate").finite()
        if rate.step[-1] < TRIAL and not log.number("learning_rate"):
            return Unmet(
                f"fewer than {TRIAL} steps only try whether it runs", "name the log of a longer run"
            )
        if (
            log.total_steps
            and log.last_step + 2 * float(np.median(np.diff(rate.step))) <= log.total_steps
        ):
            return Unmet("the run has not come to its last step", "name its log when it has ended")
        return None

    def figure(self) -> str:
        rate = self.subject.curve("learning_rate").finite()
        top = int(np.argmax(rate.value))
        return (
            f"the learning rate is highest at step {rate.step[top]:,.0f} of {rate.step[-1]:,.0f}"
            f" with {rate.value[top]:.3g}, and {rate.value[-1]:.3g} at the end"
        )

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        rate = log.curve("learning_rate").finite()
        total = log.total_steps
        asked = log.number("learning_rate")
        if rate.step.size < 3 or rate.value[-1] <= 0 or (rate.step[-1] < TRIAL and not asked):
            return
        if total and log.last_step + 2 * float(np.median(np.diff(rate.step))) <= total:
            return
        slope, offset = np.polyfit(rate.step, rate.value, 1)
        peak = float(rate.value[-1])
        straight = np.abs(rate.value - slope * rate.step - offset).max() < 0.02 * peak
        if (
            not straight
            or slope <= 0
            or rate.value[0] > 0.7 * peak
            or np.any(np.diff(rate.value) <= 0)
        ):
            return
        if asked and peak > 0.99 * asked:
            return
        of_asked = f", {peak / asked:.0%} of the configured {asked:g}" if asked else ""
        yield self.finding(
            f"the learning rate still rises at the last step ({rate.step[-1]:,.0f}): it reached"
            f" {peak:.3g}{of_asked}",
            ("" if total else "if the run is over: ")
            + "set warmup_steps to a small part of it (0.03 of it in transformers 5, warmup_ratio"
            " before)",
            severity="error" if total else "info",
            evidence=(
                (
                    f"it grows by {slope:.3g} a step from {rate.value[0]:.3g} at step"
                    f" {rate.step[0]:,.0f}"
                ),
            ),
            figure=figure("learning rate", {"learning_rate": rate}),
        )
