"""Preference pairs are ranked right before they are trained on: something trivial separates them.

## What it does
Averages `rewards/accuracies` (of a reward model: `accuracy`) over the records between 5 % and 50 % of the first epoch,
ten at least. It warns above 0.98. If no epoch is logged, it uses the records between 1/50 and 1/8 of the run, which is
half an epoch of a run with four.

## Why it is bad
Pairs that the model has not seen yet are already ranked right. It learned one superficial feature (length, a missing
stop token, one side cut off, one source for all chosen answers), not what makes an answer good. The loss looks perfect.

## Example
```yaml
curve:
  rewards/accuracies: {
      values: [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0,
      1.0, 1.0, 1.0], steps: 100}
  rewards/margins: {from: 0.0, to: 9.0, steps: 100}
  epoch: {from: 0.01, to: 1.0, steps: 100}
```

## Use instead
```yaml
curve:
  rewards/accuracies: {from: 0.5, to: 0.78, steps: 100, noise: 0.05}
  rewards/margins: {from: 0.0, to: 1.5, steps: 100, noise: 0.05}
  epoch: {from: 0.01, to: 1.0, steps: 100}
```

## Fix safety
`truetune check PAIRS` measures what separates chosen from rejected (length, stop tokens, truncation). Making both sides
alike in it, or removing the pairs that differ by it alone, leaves harder pairs and a higher loss.

## References
- huggingface/trl#1236, huggingface/trl#2003, allenai/reward-bench#268
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.reasons_rules_cannot_judge import LOGGED_BY, explain_too_short_curve
from truetune.checks.rule import LogRule
from truetune.logs.run_log import Curve

# Chosen, not measured: five records of few pairs each may all be right by chance.
MIN_POINTS = 10
NO_EPOCH = "the log has no epoch: this is the first eighth of its steps, half of the first epoch if the run has four"
# Pairs of real preferences are never that clear: annotators agree on fewer. At 0.9, easy data sets would fire.
MIN_ACCURACY = 0.98


class DpoAccuracyAtOnce(LogRule):
    code = "LOG026"
    fault = Fault.PAIRS_TOLD_APART_BY_FORM
    severity = "warning"
    since = "0.1.0"
    kinds = ("preference", "reward")

    def unmet(self) -> Unmet | None:
        """Also unmet where no accuracy is logged, or too few stand within the first half epoch."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if not self.subject.curve(self._name):
            return Unmet(f"the log has no {self._name}", LOGGED_BY.get(self._name, ""))
        count = int(self._accuracy_on_unseen_pairs().step.size)
        return (
            explain_too_short_curve(
                count,
                MIN_POINTS,
                f"{self._name} within the first half epoch"
                + (
                    ""
                    if self.subject.epochs_at_end > 0
                    else " (an eighth of the run, which logs no epoch)"
                ),
            )
            if count < MIN_POINTS
            else None
        )

    @property
    def _name(self) -> str:
        """The accuracy of the pairs: reward models call it plain `accuracy`."""
        return "accuracy" if self.subject.kind == "reward" else "rewards/accuracies"

    def measurement_if_clean(self) -> str:
        """The share of pairs in order before they were seen."""
        values = self._accuracy_on_unseen_pairs().value
        return (
            f"{np.mean(values):.1%} of the pairs are in order before they were seen"
            f" ({values.size:,} records)"
        )

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        if log.kind not in self.kinds:
            return
        new = self._accuracy_on_unseen_pairs()
        if new.step.size < MIN_POINTS or float(np.mean(new.value)) < MIN_ACCURACY:
            return
        step = float(new.step[0])
        at = f" (epoch {log.epoch_at(step):.2g})" if log.epochs_at_end > 0 else ""
        yield self.finding(
            f"{np.mean(new.value):.1%} of the pairs are ranked right by step {step:,.0f}{at}, before the model has"
            " seen them: something trivial separates chosen from rejected",
            "find what separates chosen from rejected (length, stop tokens, truncation, source) with"
            " `truetune check PAIRS`, and balance both sides in it or remove those pairs",
            evidence=() if log.epochs_at_end > 0 else (NO_EPOCH,),
            figure=draw_curves(
                "accuracy",
                {self._name: log.curve(self._name).finite()},
                {"unseen pairs ranked right": step},
            ),
        )

    def _accuracy_on_unseen_pairs(self) -> Curve:
        """The curve of accuracy over the first half epoch, whose pairs the model has not seen
        before.
        """
        log = self.subject
        curve = log.curve(self._name).finite()
        if log.epochs_at_end > 0:
            epoch = log.epoch_at(curve.step)
            new = (epoch > 0.05) & (epoch <= 0.5)
        else:
            # Steps of a resumed log begin far from 0: the first records are no first ones of the run then.
            begin = float(curve.step[0]) if curve else 0.0
            length = log.last_step
            new = (curve.step > length / 50) & (curve.step <= length / 8)
            new &= begin <= length / 50
        return Curve(curve.step[new], curve.value[new])
