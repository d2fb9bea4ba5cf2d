"""The evaluation loss drops at each epoch as the training loss does: it is measured on training rows.

## What it does
Reads both losses where one epoch ends and the next begins. When rows are seen again, the training loss drops at that
point, because the model has memorised them (a drop beyond the slope within the epoch before). An evaluation there that
is nearer to the training loss after the drop than to that before it has memorised its rows as well. The rule warns if
that is so at every such point, three at least, with drops of 5 % and four times the noise.

## Why it is bad
The evaluation says nothing about rows that the model has not seen. Its loss never rises, so early stopping never fires.

## Example
```yaml
curve:
  loss: {values: [3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5], steps: 160, noise: 0.01}
  epoch: {from: 0.025, to: 4, steps: 160}
  eval_loss: {values: [2.0, 1.0, 0.5, 0.3], steps: 160, every: 40}
```

## Use instead
```yaml
curve:
  loss: {values: [3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5], steps: 160, noise: 0.01}
  epoch: {from: 0.025, to: 4, steps: 160}
  eval_loss: {values: [2.9, 2.8, 2.8, 2.8], steps: 160, every: 40}
```

## Fix safety
`truetune check` with both files names the rows that are in both. Remove them from the training data, or evaluate on
other rows; the evaluation loss then becomes higher, and means something.

## References
- OpenRLHF/OpenRLHF#1089, huggingface/datasets#4261
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.rule import LogRule
from truetune.logs.robust_statistics import noise_sigma

# Chosen, not measured: a drop at one border of epochs may be chance, at three in a row it is not.
MIN_BORDERS = 3


class EpochBorder(NamedTuple):
    """Losses of training and evaluation at the end of an epoch."""

    step: float
    before: float
    after: float
    evaluation: float


class EvaluationMeasuredOnTrainingRows(LogRule):
    code = "LOG017"
    fault = Fault.EVALUATION_ROWS_IN_TRAINING_DATA
    severity = "warning"
    since = "0.1.0"
    kinds = ("language",)
    needs = ("loss", "eval_loss")

    def unmet(self) -> Unmet | None:
        """Also unmet where too few ends of epochs have an evaluation and a drop of the training
        loss.
        """
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        count = len(list(self._epoch_borders_with_loss_drop()))
        if count < MIN_BORDERS:
            return Unmet(
                f"there is an evaluation at {count:,} borders of epochs where the training loss"
                f" drops, and it takes {MIN_BORDERS}",
                "evaluate at the end of each epoch (eval_strategy: epoch), and log more often than"
                " that",
            )
        return None

    def measurement_if_clean(self) -> str:
        """At how many ends of epochs the evaluation loss falls with the training loss."""
        borders = list(self._epoch_borders_with_loss_drop())
        leaked = sum(abs(b.evaluation - b.after) < abs(b.evaluation - b.before) for b in borders)
        return (
            f"eval_loss falls with the training loss at {leaked:,} of {len(borders):,} borders of"
            " epochs"
        )

    def findings(self) -> Iterator[Finding]:
        borders = list(self._epoch_borders_with_loss_drop())
        leaked = [b for b in borders if abs(b.evaluation - b.after) < abs(b.evaluation - b.before)]
        if len(borders) < MIN_BORDERS or len(leaked) < len(borders):
            return
        log = self.subject
        yield self.finding(
            f"eval_loss drops together with the training loss at {len(leaked)} starts of an epoch, as if its rows were"
            " trained on",
            "find the rows that are in both sets (`truetune check TRAIN --eval-data EVAL`), and evaluate on rows that"
            " are not trained on",
            evidence=[
                f"step {b.step:,.0f}: loss {b.before:.4g} before, {b.after:.4g} after, eval_loss"
                f" {b.evaluation:.4g}"
                for b in leaked[:3]
            ],
            count=len(leaked),
            figure=draw_curves(
                "loss and eval_loss",
                {"loss": log.curve("loss"), "eval_loss": log.curve("eval_loss")},
            ),
        )

    def _epoch_borders_with_loss_drop(self) -> Iterator[EpochBorder]:
        """The ends of epochs at which the training loss drops, because rows are seen again, and an
        evaluation stands.
        """
        log = self.subject
        loss, evaluation = log.curve("loss").finite(), log.curve("eval_loss").finite()
        if log.kind != "language" or not loss or not evaluation or log.epochs_at_end < MIN_BORDERS:
            return
        epoch, sigma = log.epoch_at(loss.step), noise_sigma(loss.value)
        per_epoch = loss.step.size / max(1.0, log.epochs_at_end)
        width, whole = max(2, int(per_epoch / 4)), int(per_epoch)
        for step, value in zip(*evaluation, strict=True):
            at = float(log.epoch_at(step))
            if per_epoch < 4 or at < 0.9 or abs(at - round(at)) > 0.5 / per_epoch:
                continue
            cut = int(np.searchsorted(epoch, round(at), side="right"))
            if cut < whole or cut + width > loss.value.size:
                continue
            early = float(np.median(loss.value[cut - whole : cut - whole + width]))
            before = float(np.median(loss.value[cut - width : cut]))
            after = float(np.median(loss.value[cut : cut + width]))
            going = max(0.0, early - before) * width / max(1, whole - width)
            if before - after - going > max(0.05 * before, 4 * sigma / np.sqrt(width)):
                yield EpochBorder(float(step), before, after, float(value))
