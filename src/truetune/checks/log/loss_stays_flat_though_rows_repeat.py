"""The loss falls in the first records and then never again, although the rows repeat.

## What it does
Looks at a loss that starts above the level that it then keeps. It reports as info that the last three quarters of the
records see the rows at least twice and the loss does not fall there (Theil-Sen slope with its 95 % interval), at a
learning rate that changes the weights. If rows are seen only once, this shape is normal and not reported.

## Why it is bad
In the first steps a model learns the form of the answers: where they begin, how long they are, how they end. Their
content is learned while the rows are read again, and then the loss falls from epoch to epoch: by 8 % and more in the
real runs of this project's tests. If it does not, the answers do not follow from the prompts, or too few weights are
trained to learn them.

## Example
```yaml
curve:
  loss: {values: [2.4, 1.8, 1.8, 1.8, 1.8, 1.8, 1.8, 1.8, 1.8, 1.8, 1.8], steps: 80, noise: 0.01}
  learning_rate: {from: 1.0e-4, steps: 80}
  epoch: {from: 0.0, to: 4.0, steps: 80}
```

## Use instead
```yaml
curve:
  loss: {values: [2.4, 1.8, 1.7, 1.6, 1.5, 1.45, 1.4, 1.35, 1.3, 1.28, 1.27], steps: 80, noise: 0.01}
  learning_rate: {from: 1.0e-4, steps: 80}
  epoch: {from: 0.0, to: 4.0, steps: 80}
```

## Fix safety
There is no automatic fix. First try to overfit ten rows: what can't be learned from those is not learned from more.

## References
- huggingface/trl#3926
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.log.evidence.fall_of_loss_and_possible_causes import (
    FIRST,
    LEARNED,
    MIN_EPOCH_RECORDS,
    LossFall,
    causes_ruled_out_by_log,
    describe_remaining_causes,
    measure_fall,
)
from truetune.checks.rule import LogRule
from truetune.logs.run_log import Curve, RunLog

FIRST_PART = 4
"""The first fall ends in a quarter of the records: what falls for longer has no short fall"""
MIN_EPOCHS = 2.0
"""Epochs behind the first fall: rows that are seen again"""


class LossStaysFlatThoughRowsRepeat(LogRule):
    code = "LOG070"
    fault = Fault.LOSS_STAYS_HIGH
    symptoms = ("loss-does-not-fall",)
    severity = "info"
    moot_where = (
        "loss-diverges",
        "flat-loss",
        "learning-rate-ended-early",
        "first-loss-above-guessing",
        "loss-repeats-exactly",
    )
    kinds = ("language",)
    needs = ("loss", "epoch")
    least = MIN_EPOCH_RECORDS

    def measurement_if_clean(self) -> str:
        """The loss at the beginning, and at both ends of the last three quarters of the records."""
        loss = self.subject.curve("loss").finite()
        rest = loss.value[loss.value.size // FIRST_PART :]
        return (
            f"the loss begins at {np.median(loss.value[:FIRST]):.4g}, and goes from {np.median(rest[:FIRST]):.4g} to"
            f" {np.median(rest[-FIRST:]):.4g} in the last three quarters of its records"
        )

    def findings(self) -> Iterator[Finding]:
        if self.unmet() is not None:
            return
        log = self.subject
        loss = log.curve("loss").finite()
        plateau = _plateau_after_first_fall(log, loss)
        if plateau is None:
            return
        began = float(np.median(loss.value[:FIRST]))
        yield self.finding(
            f"the loss falls from {began:.4g} to {plateau.level:.4g} in the first quarter of {loss.step.size:,} records"
            f" and stays there, although the rows were seen {log.epochs_at_end:.3g} times: the model learned the form"
            " of the answers but not their content",
            describe_remaining_causes(log, plateau.peak_rate),
            evidence=causes_ruled_out_by_log(log, plateau.peak_rate),
            figure=draw_curves("loss", {"loss": loss}),
        )


def _plateau_after_first_fall(log: RunLog, loss: Curve) -> LossFall | None:
    """The records behind the first fall, where they stay on one level while the rows are seen
    twice; else None.
    """
    start = loss.step.size // FIRST_PART
    rest = Curve(loss.step[start:], loss.value[start:])
    if rest.step.size < MIN_EPOCH_RECORDS or not measure_fall(log, loss).fell_at_first:
        return None
    first, last = log.epoch_at(rest.step[[0, -1]])
    if last - first < MIN_EPOCHS:
        return None
    late = measure_fall(log, rest)
    rate = log.curve("learning_rate").finite()
    # A schedule that has come to its end moves nothing in the records that are looked at.
    is_idle = bool(rate) and float(rate.at(rest.step[rest.step.size // 2])) < 0.1 * rate.value.max()
    is_level = (
        late.stays_flat_on_repeated_rows and not late.fell_at_first and not late.has_negligible_rate
    )
    return late if is_level and late.level >= LEARNED and not is_idle else None
