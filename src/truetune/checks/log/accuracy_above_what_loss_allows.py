"""The logged token accuracy is too high for the logged loss: it counts other tokens.

## What it does
Compares `loss` with `mean_token_accuracy` (or `eval_loss` with `eval_mean_token_accuracy`), which TRL logs for the same
tokens. Tokens that the model predicts right cost at most 0.35 on average. Wrong tokens cost hardly more than a guess
among all words of the largest vocabulary, 12.5. The rule fires if the loss is above what these two allow for the logged
accuracy, in nine of ten records. At 97 % accuracy and a loss of 1.1, for example, each wrong token would need a loss of
25.

## Why it is bad
The accuracy is not measured on the tokens in the loss. It counts padding or prompts, which are easy to get right, or it
compares predictions with labels that are not shifted. A number that says nothing about the answers then decides when to
stop and which checkpoint to keep.

## Example
```yaml
curve:
  loss: {from: 1.9, to: 1.1, steps: 40, noise: 0.02}
  mean_token_accuracy: {from: 0.97, to: 0.98, steps: 40, noise: 0.002}
```

## Use instead
```yaml
curve:
  loss: {from: 1.9, to: 1.1, steps: 40, noise: 0.02}
  mean_token_accuracy: {from: 0.55, to: 0.72, steps: 40, noise: 0.01}
```

## Fix safety
Compute both for one batch by hand first: take the logits at `[:, :-1]` and the labels at `[:, 1:]`, and count only
labels that are not -100. Correcting `compute_metrics` changes the logged accuracy, not the training. Label smoothing
adds about 1 to the loss, and so do losses with other parts (experts, a teacher): then the accuracy may be right.

## References
- huggingface/transformers#40303 (what TRL counts); DaoyuanLi2816/Molecule-Generator#21 (padding that was counted)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.reasons_rules_cannot_judge import OTHER_LOSS
from truetune.checks.rule import LogRule
from truetune.logs.is_loss_summed_not_averaged import parts_of_training_loss
from truetune.logs.run_log import Curve, Floats

PAIRS = (("loss", "mean_token_accuracy"), ("eval_loss", "eval_mean_token_accuracy"))
MIN_RECORDS = {"loss": 5, "eval_loss": 2}
MAX_NATS_OF_RIGHT = 0.35
"""Mean loss of right tokens at most, a probability of 0.7. In 281 records of this project's tests and benches with 97 %
right or more, the loss of all tokens is 0.21 at most. Right tokens of a model that is unsure cost more, but then so
many are wrong that these decide"""
MAX_NATS_OF_WRONG = 12.5
"""ln 262,144, a guess among the largest published vocabulary. In 116 curves of this project's tests and benches that
have both, the wrong tokens of a whole run need 8.3 at most (a run that diverged), and 5.2 where it learned"""
# Chosen, not measured: a record or two may be of a batch with few labels.
MIN_BROKEN_SHARE = 0.9
SMOOTHED_LOSS = Unmet("it is about plain losses, and the settings smooth labels")
LOSS_OF_PARTS = Unmet("it is about plain losses, and the log shows that this one has several parts")


class AccuracyAboveWhatLossAllows(LogRule):
    code = "LOG175"
    fault = Fault.METRIC_GETS_WRONG_INPUTS
    symptoms = ("odd-metrics",)
    severity = "warning"
    kinds = ("language",)
    needs = ("mean_token_accuracy",)
    moot_where = (
        "loss-is-a-sum",
        "first-loss-above-guessing",
        "loss-climbs-above-guessing",
        "loss-diverges",
    )

    def unmet(self) -> Unmet | None:
        """Also unmet where the loss is none of tokens, or holds more than that of the tokens."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if not self.subject.is_loss_of_token_prediction:
            return OTHER_LOSS
        if self._smooths_labels():
            return SMOOTHED_LOSS
        return LOSS_OF_PARTS if parts_of_training_loss(self.subject) else None

    def measurement_if_clean(self) -> str:
        """The nats that the wrong tokens need by loss and accuracy, as the median of the records."""
        loss, right = self._loss_and_accuracy(*PAIRS[0])
        has_wrong = right < 1
        if not has_wrong.any():
            return ""
        needed = _nats_of_wrong_tokens(loss.value[has_wrong], right[has_wrong])
        return f"wrong tokens have {max(0.0, float(np.median(needed))):.2g} nats each by loss and accuracy (median)"

    def findings(self) -> Iterator[Finding]:
        if self.unmet() is not None:
            return
        for name, accuracy in PAIRS:
            loss, right = self._loss_and_accuracy(name, accuracy)
            if loss.step.size < MIN_RECORDS[name]:
                continue
            allowed = MAX_NATS_OF_RIGHT * right + MAX_NATS_OF_WRONG * (1 - right)
            broken = loss.value > allowed
            if broken.mean() < MIN_BROKEN_SHARE:
                continue
            yield self.finding(
                f"{accuracy} is {right[-1]:.3g} but {name} is {loss.value[-1]:.3g}{_why_impossible(loss, right)}:"
                " accuracy and loss are not measured on the same tokens",
                "in compute_metrics (or wherever the accuracy is computed) compare logits[:, :-1].argmax(-1) with"
                " labels[:, 1:], and count only labels that are not -100; until then choose checkpoints by the loss",
                count=int(broken.sum()),
                total=int(loss.step.size),
                figure=draw_curves(
                    name, {name: loss, "most by accuracy": Curve(loss.step, allowed)}, log=True
                ),
            )
            return

    def _smooths_labels(self) -> bool:
        """Do the log or settings beside it smooth the labels, which adds to the loss?"""
        named = self.subject.files_beside.settings_named("label_smoothing_factor")
        is_set_beside = any(one.value not in (0, 0.0, None) for one in named)
        return is_set_beside or bool(self.subject.fact_as_number("label_smoothing_factor"))

    def _loss_and_accuracy(self, name: str, accuracy: str) -> tuple[Curve, Floats]:
        """A loss, and the accuracy at its steps, where both are logged and the accuracy is a share."""
        loss, right = self.subject.curve(name).finite(), self.subject.curve(accuracy).finite()
        if not loss or not right:
            return Curve(loss.step[:0], loss.value[:0]), loss.value[:0]
        at_loss = np.asarray(right.at(loss.step))
        is_kept = np.isin(loss.step, right.step) & (at_loss >= 0) & (at_loss <= 1)
        return Curve(loss.step[is_kept], loss.value[is_kept]), at_loss[is_kept]


def _nats_of_wrong_tokens(loss: Floats, right: Floats) -> Floats:
    """What each wrong token costs, so that the loss comes out; the accuracies are below 1."""
    return np.asarray((loss - MAX_NATS_OF_RIGHT * right) / (1 - right))


def _why_impossible(loss: Curve, right: Floats) -> str:
    """What each wrong token would cost at the last record; or that there is none."""
    if right[-1] >= 1:
        return f", although tokens predicted right have a loss of at most {MAX_NATS_OF_RIGHT}"
    needed = float(_nats_of_wrong_tokens(loss.value[-1:], right[-1:])[0])
    return f", so each wrong token would need a loss of {needed:.3g}, worse than a guess among all words"
