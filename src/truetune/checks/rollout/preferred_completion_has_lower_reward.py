"""Online DPO makes the completion with the lower reward likelier.

## What it does

Reads from the gradient of the loss by the log-probabilities which of two completions of a prompt is made likelier, and
compares it with their rewards. Rewards that the trainer put to other completions than the reward function gave them to,
or whose sign it changed, are taken as the function returned them. Pairs with equal rewards are left out.

## Why it is bad

The policy learns the worse answers. The loss starts at 0.693 and falls, and the margins rise, as in a healthy run; only
the mean reward falls.

## Example

```python
import trl.experimental.online_dpo as online


class Reversed(online.OnlineDPOTrainer):
    def _calculate_rewards_from_functions(self, **given):
        return -super()._calculate_rewards_from_functions(**given)

run = online_dpo(Reversed)
```

## Use instead

```python
run = online_dpo()
```

## Fix safety

There is no automatic fix. For a score that is better when it is lower, return its negative from the reward function.

## References

- Guo et al. 2024 (online DPO), arXiv 2402.04792, section 3; huggingface/trl#1839
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.auditing.rollout_run import RolloutRun
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rollout.evidence.advantages_by_settings import weighted_rewards
from truetune.checks.rule import RolloutRule
from truetune.probe.rollout_step import ONLINE_DPO, RolloutStep

NO_PAIRS = Unmet("the completions are not learned from in pairs")
NO_DIFFERENCE = Unmet("no pair was seen whose rewards differ, and whose gradient is known")
IPO = f"{ONLINE_DPO} ipo"
# Rewards are float32 numbers: two that went through a sum of weights are the same up to its rounding.
MAX_DIFFERENCE = 1e-5


class PreferredCompletionHasLowerReward(RolloutRule):
    code = "ROL018"
    fault = Fault.PREFERENCES_REVERSED
    severity = "error"
    symptoms = ("reward-does-not-rise",)

    def __init__(self, subject: RolloutRun) -> None:
        super().__init__(subject)
        self.pairs = 0
        self.reversed = 0

    def unmet(self) -> Unmet | None:
        if not any(_is_of_pairs(step) for step in self.subject.steps):
            return super().unmet() or NO_PAIRS
        return None if self.pairs else NO_DIFFERENCE

    def findings(self) -> Iterator[Finding]:
        """The finding that worse completions are made likelier."""
        cases: list[Case] = []
        for number, step in self.subject.numbered_steps():
            rewards = _rewards_of_completions(step) if _is_of_pairs(step) else None
            if rewards is None:
                continue
            directions = step.advantages.reshape(-1, 2)
            for pair, (two, ways) in enumerate(
                zip(rewards.reshape(-1, 2), directions, strict=True)
            ):
                if np.isnan(two).any() or two[0] == two[1] or ways[0] == ways[1]:
                    continue
                self.pairs += 1
                if np.argmax(two) != np.argmax(ways):
                    self.reversed += 1
                    cases.append(
                        Case(
                            f"rollout {number}, pair {pair + 1}: the completion with the reward {two.min():.4g} is made"
                            f" likelier, the one with {two.max():.4g} less likely"
                        )
                    )
        if not self.reversed:
            return
        yield self.finding(
            f"in {self.reversed:,} of {self.pairs:,} pairs the completion with the lower reward is made likelier",
            "check the sign and the order of the rewards in your trainer: TRL takes the higher one as chosen, and has"
            " the first completions of all prompts before the second ones",
            cases=cases,
            count=self.reversed,
            total=self.pairs,
        )

    def measurement_if_clean(self) -> Measurement:
        """How many pairs are learned the wrong way."""
        return make_count_measurement(
            "pairs whose completion with the lower reward is made likelier",
            self.reversed,
            self.pairs,
        )


def _is_of_pairs(step: RolloutStep) -> bool:
    """Is it a step on pairs whose direction is known? IPO turns round once a margin is large enough."""
    kind = step.settings.loss_type
    return kind.startswith(ONLINE_DPO) and not (kind == IPO and step.optimizer_step > 0)


def _rewards_of_completions(step: RolloutStep) -> np.ndarray | None:
    """(completions,) rewards; as the function returned them where the trainer only moved or negated them."""
    totals = weighted_rewards(step)
    if totals is None or len(totals) != step.rows:
        return None
    returned = _rewards_returned_by_one_function(step)
    if returned is None:
        return totals
    penalty = 0.0 if step.reward_penalty is None else step.reward_penalty
    own = totals + penalty
    is_moved = np.allclose(np.sort(own), np.sort(returned), atol=MAX_DIFFERENCE)
    is_negated = np.allclose(own, -returned, atol=MAX_DIFFERENCE)
    return np.asarray(returned - penalty if is_moved or is_negated else totals)


def _rewards_returned_by_one_function(step: RolloutStep) -> np.ndarray | None:
    """(completions,) what a step's only reward function returned; None where it has several, or one gave no number."""
    if len(step.reward_calls) != 1:
        return None
    returned = np.array([np.nan if one is None else one for one in step.reward_calls[0].values])
    return None if len(returned) != step.rows or np.isnan(returned).any() else returned
