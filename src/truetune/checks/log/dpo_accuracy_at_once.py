"""Preferences are told apart before they were learned: something trivial separates the pairs.

## What it does
Averages `rewards/accuracies` over the records between the first twentieth and the first half of the first epoch, ten
of them at least: it fires above 0.98.

## Why it is bad
Pairs that the model has not seen yet are already in order. It learned one mark (length, a missing stop token, one
side cut off, one source for all chosen answers), not what makes an answer good. The loss looks perfect.

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
`truetune check` on the pairs says what separates them (length, stops, cuts).

## References
- huggingface/trl#1236, huggingface/trl#2003, allenai/reward-bench#268
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.findings import Finding
from truetune.checks.log.drawing import figure
from truetune.checks.rule import LogRule

MIN_POINTS = 10
ALL = 0.98


class DpoAccuracyAtOnce(LogRule):
    code = "TT824"
    severity = "warning"
    kinds = ("preference",)
    needs = ("rewards/accuracies",)

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        curve = log.curve("rewards/accuracies").finite()
        if log.kind != "preference" or not curve or log.epochs <= 0:
            return
        epoch = log.epoch_at(curve.step)
        new = (epoch > 0.05) & (epoch <= 0.5)
        if new.sum() < MIN_POINTS or float(np.mean(curve.value[new])) < ALL:
            return
        step = float(curve.step[new][0])
        yield self.finding(
            f"{np.mean(curve.value[new]):.1%} of the pairs are in order by step {step:,.0f} (epoch "
            f"{log.epoch_at(step):.2g}), before they were seen",
            "look what separates chosen from rejected: length, stop tokens, truncation, source",
            figure=figure("accuracy", {"rewards/accuracies": curve}, {"unseen pairs in order": step}),
        )
