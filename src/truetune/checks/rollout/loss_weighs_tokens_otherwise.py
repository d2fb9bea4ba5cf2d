"""The loss of a rollout weighs its tokens otherwise than its settings say.

## What it does

Takes the gradient of the loss by the log-probability of each token, as the training's own backward pass made it, and
compares it with what the settings say: advantage and ratio, the clip range, what `loss_type` divides by (the tokens of
a completion, of the batch, a constant), the KL term, and the number of micro-batches of a step. Where another form fits
it is named. It is not judged under settings that change the loss otherwise (`top_entropy_quantile`, an entropy bonus).

## Why it is bad

The value of such a loss is near 0 in healthy runs and in broken ones, since the advantages of a group add up to 0. Its
gradient is what is learned: with the opposite sign the policy unlearns, divided twice it hardly moves, and with another
divisor long answers count more or less than they should.

## Example

```python
class DividedAgain(trl.GRPOTrainer):
    def compute_loss(self, model, inputs, **others):
        return super().compute_loss(model, inputs, **others) / self.args.gradient_accumulation_steps

run = grpo(DividedAgain, gradient_accumulation_steps=2)
```

## Use instead

```python
run = grpo(trl.GRPOTrainer, gradient_accumulation_steps=2)
```

## Fix safety

There is no automatic fix. A loss of your own design is no fault: leave the rule out with `--ignore`.

## References

- huggingface/trl#3021, huggingface/trl#2995, huggingface/trl#3138
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from truetune.auditing.rollout_run import RolloutRun
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rollout.evidence.loss_gradient_by_settings import (
    expected_gradient,
    is_same_gradient,
    name_form_of_gradient,
    tokens_outside_mask_with_gradient,
    unknown_reason,
)
from truetune.checks.rollout.evidence.reasons_rollouts_cannot_judge import (
    NO_PASS,
    reason_without_rewards_or_loss,
)
from truetune.checks.rule import RolloutRule
from truetune.probe.rollout_step import LossPass, RolloutStep

ALL_ZERO = Unmet("every token's weight is 0, as it is where all advantages are")


class LossWeighsTokensOtherwise(RolloutRule):
    code = "ROL014"
    fault = Fault.LOSS_WEIGHS_TOKENS_WRONGLY
    severity = "error"
    symptoms = ("reward-does-not-rise", "agent-training")

    def __init__(self, subject: RolloutRun) -> None:
        super().__init__(subject)
        self.passes = 0
        self.tokens = 0
        self.reason = ""

    def unmet(self) -> Unmet | None:
        if self.tokens:
            return None
        if self.reason:
            return Unmet(self.reason)
        return super().unmet() or (
            ALL_ZERO if self.passes else reason_without_rewards_or_loss(self.subject, NO_PASS)
        )

    def findings(self) -> Iterator[Finding]:
        wrong: list[Case] = []
        outside = 0
        forms: set[str] = set()
        for number, step in self.subject.numbered_steps():
            passes = [one for one in step.passes if self._can_be_judged(step, one)]
            differing = [
                one
                for one in passes
                if not is_same_gradient(step, one, expected_gradient(step, one))
            ]
            if not differing:
                continue
            outside += sum(tokens_outside_mask_with_gradient(one) for one in differing)
            forms.add(name_form_of_gradient(step, passes))
            wrong += [Case(_largest_difference(number, step, one)) for one in differing]
        if not wrong:
            return
        evidence = []
        if outside:
            evidence.append(f"{outside:,} tokens count that are not meant to be in the loss")
        yield self.finding(
            f"in {len(wrong):,} of {self.passes:,} micro-batches the tokens count otherwise than"
            f" loss_type={self.subject.steps[0].settings.loss_type!r} and the other settings say"
            + _name_of_one_form(forms),
            "compute the loss as the settings say, or set what is meant",
            evidence=evidence,
            cases=wrong,
            count=len(wrong),
            total=self.passes,
        )

    def measurement_if_clean(self) -> str:
        """How many tokens were compared."""
        return f"tokens that count otherwise in the loss: 0 of {self.tokens:,}, in {self.passes:,} micro-batches"

    def _can_be_judged(self, step: RolloutStep, one: LossPass) -> bool:
        """Can a micro-batch be judged? Counts it, or keeps the reason why not."""
        reason = unknown_reason(step, one)
        if reason:
            self.reason = reason
            return False
        assert one.logp_gradient is not None
        self.passes += 1
        if one.logp_gradient.any() or expected_gradient(step, one).any():
            self.tokens += int(one.in_loss.sum())
        return True


def _name_of_one_form(forms: Collection[str]) -> str:
    """The form that the gradients of all steps have, as the end of a sentence; empty where they have several, or one
    without a name.
    """
    form = next(iter(forms)) if len(forms) == 1 else ""
    return f": {form}" if form else ""


def _largest_difference(number: int, step: RolloutStep, one: LossPass) -> str:
    """The token of a micro-batch whose weight differs most, in words."""
    expected, recorded = expected_gradient(step, one), np.asarray(one.logp_gradient)
    row, token = np.unravel_index(int(np.abs(recorded - expected).argmax()), recorded.shape)
    return (
        f"rollout {number}, a completion of {int(one.in_loss[row].sum()):,} tokens, token {int(token)}: gradient"
        f" {recorded[row, token]:.3g} instead of {expected[row, token]:.3g}"
    )
