"""The loss climbs far above that of guessing: steps that are too large destroyed the weights.

## What it does
Compares the losses with ln(vocabulary), that of a model which takes every token for equally likely (a million tokens if
the vocabulary is not known). It fires if the first losses are below 1.2 times that, and at least three later ones, a
tenth of all, are above it. Losses of exactly 0 are left out: the Trainer logs NaN as 0. Findings that follow from it (a
loss that stays up, gradients that are not finite) are shown as its evidence.

## Why it is bad
A model that knows nothing guesses. A model that is worse than guessing is sure of wrong tokens, which no data teach:
its weights were moved far away from their values. Later steps bring the loss back to guessing at best, and every
checkpoint from then on is worthless.

## Example
```yaml
curve:
  loss: {values: [7.6, 860, 630, 990, 390, 300], steps: 60, noise: 0.05}
config: {vocab_size: 32000}
```

## Use instead
```yaml
curve:
  loss: {values: [7.6, 5.2, 4.4, 3.9, 3.6, 3.5], steps: 60, noise: 0.05}
config: {vocab_size: 32000}
```

## Fix safety
Start again from the base with a lower learning rate. With AdamW, 1e-5 to 5e-5 for full fine-tuning and 1e-4 to 5e-4 for
LoRA are usual. `truetune run` compares the learning rate with the weights before the first step
(`steps-larger-than-the-weights`).

## References
- Lightning-AI/litgpt#628, stas00/ml-engineering#32
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.log.evidence.bounds_of_loss_and_rate import (
    HIGH_RATE,
    MAX_VOCABULARY,
    MIN_TIMES_GUESSING,
)
from truetune.checks.reasons_rules_cannot_judge import OTHER_LOSS
from truetune.checks.rule import LogRule
from truetune.logs.is_loss_summed_not_averaged import (
    count_of_means_added_up_in_loss,
    parts_of_training_loss,
)
from truetune.logs.run_log import Curve

MIN_ABOVE, MIN_ABOVE_SHARE = 3, 0.1
"""Records above guessing, and their share of all"""
MIN_RECORDS = 8
"""Records: of fewer nothing is fine yet, though some may be above guessing already"""


class LossClimbsAboveGuessing(LogRule):
    code = "LOG001"
    fault = Fault.LOSS_UNSTABLE
    severity = "error"
    kinds = ("language",)
    needs = ("loss",)
    least = MIN_RECORDS

    def unmet(self) -> Unmet | None:
        """Also unmet where the loss is a sum of several, or begins above guessing."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if not self.subject.is_loss_of_token_prediction:
            return OTHER_LOSS
        if count_of_means_added_up_in_loss(self.subject) or parts_of_training_loss(self.subject):
            return Unmet("the loss is a sum of several", "log the mean over tokens")
        if (
            self._finite_nonzero_losses().value[:MIN_ABOVE].min(initial=math.inf)
            > MIN_TIMES_GUESSING * self._uniform_loss()
        ):
            return Unmet("the loss begins above guessing, which first-loss-above-guessing is about")
        return None

    def measurement_if_clean(self) -> str:
        """The highest loss, beside that of a model that guesses."""
        highest = self._finite_nonzero_losses().value.max()
        return (
            f"the loss is {highest:.4g} at the highest; a model that guesses has"
            f" {self._uniform_loss():.4g}"
        )

    def findings(self) -> Iterator[Finding]:
        log, loss, guess = self.subject, self._finite_nonzero_losses(), self._uniform_loss()
        if (
            not log.is_loss_of_token_prediction
            or loss.step.size <= MIN_ABOVE
            or count_of_means_added_up_in_loss(log)
            or parts_of_training_loss(log)
        ):
            return
        above = loss.value > MIN_TIMES_GUESSING * guess
        if above[:MIN_ABOVE].all() or above.sum() < max(MIN_ABOVE, MIN_ABOVE_SHARE * above.size):
            return
        first = int(np.argmax(above))
        rates = log.curve("learning_rate").finite()
        high = bool(rates) and float(rates.value.max()) >= HIGH_RATE
        yield self.finding(
            f"the loss climbs to {loss.value.max():.4g} from step {loss.step[first]:,.0f} on, although a"
            f" model that guesses has {guess:.4g}: the steps are too large and have destroyed the"
            " weights",
            "start again from the base with a lower learning_rate: 1e-5 to 5e-5 for full fine-tuning,"
            " 1e-4 to 5e-4 for LoRA",
            evidence=(
                (
                    f"{int(above.sum()):,} of {above.size:,} losses are above guessing; it ends at"
                    f" {loss.value[-1]:.4g}"
                ),
                *((f"the learning rate was up to {rates.value.max():.3g}",) if high else ()),
            ),
            figure=draw_curves(
                "loss",
                {"loss": loss, "guessing": Curve(loss.step, np.full(loss.step.size, guess))},
                {"climbs": float(loss.step[first])},
                log=True,
            ),
        )

    def _finite_nonzero_losses(self) -> Curve:
        """The curve of losses that are numbers; an exact 0 stands for one that is none, and is left
        out.
        """
        loss = self.subject.curve("loss").finite()
        return Curve(loss.step[loss.value > 0], loss.value[loss.value > 0])

    def _uniform_loss(self) -> float:
        """The loss, in nats per token, of a model that guesses."""
        size = self.subject.fact_as_number("vocab_size") or (
            self.subject.data.vocabulary if self.subject.data else None
        )
        return math.log(size if size is not None and size > 1 else MAX_VOCABULARY)
