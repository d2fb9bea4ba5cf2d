"""The logged loss is too low for the logged token accuracy: it was divided once too often.

## What it does
Compares `loss` with `mean_token_accuracy` (or `eval_loss` with `eval_mean_token_accuracy`), which TRL logs for the same
tokens. A token that is not the model's first choice has a probability of at most 0.5, so the mean loss is at least
0.693 times the share of such tokens. The rule warns if the loss is below half of that in nine of ten records.

## Why it is bad
The loss is not the mean over the tokens: it was divided a second time by the accumulated batches or by the number of
processes, or it was averaged over padding and prompts too. If `backward()` runs on that loss, the gradients are smaller
by the same factor. If not, the logged loss can't be compared with that of other runs.

## Example
```yaml
curve:
  loss: {from: 0.12, to: 0.08, steps: 40, noise: 0.002}
  mean_token_accuracy: {from: 0.55, to: 0.66, steps: 40, noise: 0.01}
```

## Use instead
```yaml
curve:
  loss: {from: 1.9, to: 1.3, steps: 40, noise: 0.02}
  mean_token_accuracy: {from: 0.55, to: 0.66, steps: 40, noise: 0.01}
```

## Fix safety
Compute the loss of one batch by hand first: `F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())`.
The logged loss divided by it shows the factor. If it is 1 / `gradient_accumulation_steps`, update transformers, or
divide the sum over tokens by `num_items_in_batch` in `compute_loss`; gradients then become larger by that factor. A
loss that weighs tokens on purpose (`loss_type: dft`, weights of messages) is rightly lower.

## References
- huggingface/transformers#34191, huggingface/transformers#35438
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.reasons_rules_cannot_judge import OTHER_LOSS
from truetune.checks.rule import LogRule
from truetune.logs.run_log import Curve, Floats

PAIRS = (("loss", "mean_token_accuracy"), ("eval_loss", "eval_mean_token_accuracy"))
WEIGHED_LOSS = Unmet("it is about plain means over tokens, and the settings weigh tokens")
MIN_RECORDS = {"loss": 5, "eval_loss": 2}
# Chosen, not measured: a half leaves room for accuracies that were averaged over batches of other lengths.
MAX_SHARE_OF_BOUND = 0.5
MIN_BROKEN_SHARE = 0.9


class LossBelowWhatAccuracyAllows(LogRule):
    code = "LOG172"
    fault = Fault.LOGGED_LOSS_SCALED_WRONGLY
    symptoms = ("odd-metrics",)
    severity = "warning"
    kinds = ("language",)
    needs = ("mean_token_accuracy",)

    def unmet(self) -> Unmet | None:
        """Also unmet where the loss is none of tokens, or weighs them on purpose."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if not self.subject.is_loss_of_token_prediction:
            return OTHER_LOSS
        return WEIGHED_LOSS if self._is_token_weighting_loss_set_beside() else None

    def measurement_if_clean(self) -> str:
        """The least share of the bound that the loss has."""
        loss, bound = self._loss_and_lowest_loss_by_accuracy(*PAIRS[0])
        if not loss or not bound.any():
            return ""
        share = float(np.median(loss.value[bound > 0] / bound[bound > 0]))
        return f"the loss is {share:.2g} times what the token accuracy allows at least (median)"

    def findings(self) -> Iterator[Finding]:
        if (
            self.subject.kind != "language"
            or not self.subject.is_loss_of_token_prediction
            or self._is_token_weighting_loss_set_beside()
        ):
            return
        for name, accuracy in PAIRS:
            loss, bound = self._loss_and_lowest_loss_by_accuracy(name, accuracy)
            if loss.step.size < MIN_RECORDS[name]:
                continue
            broken = loss.value < MAX_SHARE_OF_BOUND * bound
            if broken.mean() < MIN_BROKEN_SHARE:
                continue
            right = float(self.subject.curve(accuracy).finite().value[-1])
            yield self.finding(
                f"{name} is {loss.value[-1]:.3g} but {accuracy} is {right:.2f}: with that many wrong tokens the mean"
                f" loss is at least {bound[-1]:.2f}, so the logged one was divided too often",
                "divide the summed loss by the number of labels once: compare the factor with"
                " gradient_accumulation_steps and the number of processes, and check that compute_loss divides by"
                " num_items_in_batch",
                count=int(broken.sum()),
                total=int(loss.step.size),
                figure=draw_curves(
                    name, {name: loss, "least by accuracy": Curve(loss.step, bound)}, log=True
                ),
            )
            return

    def _is_token_weighting_loss_set_beside(self) -> bool:
        """Do settings beside the log choose a loss that weighs tokens?"""
        named = self.subject.files_beside.settings_named("loss_type", "loss_weights")
        return any(str(one.value) not in ("nll", "chunked_nll", "None") for one in named)

    def _loss_and_lowest_loss_by_accuracy(self, name: str, accuracy: str) -> tuple[Curve, Floats]:
        """A loss, and at its steps the least that it can be by the accuracy."""
        loss, right = self.subject.curve(name).finite(), self.subject.curve(accuracy).finite()
        if not loss or not right:
            return Curve(loss.step[:0], loss.value[:0]), loss.value[:0]
        is_both = np.isin(loss.step, right.step)
        kept = Curve(loss.step[is_both], loss.value[is_both])
        return kept, log(2) * (1 - np.asarray(right.at(kept.step)))
