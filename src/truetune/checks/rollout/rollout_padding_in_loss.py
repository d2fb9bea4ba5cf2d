"""Padding after completions, or what tools wrote, is in the loss of a rollout.

## What it does

Counts the tokens in the loss that come after the last token that was sampled, and those that a tool or an
environment wrote. Where the padding begins is known by what the sampler gave, not by the id of the pad token.

## Why it is bad

The policy is rewarded or punished for tokens that it never chose. Where completions are of unequal length most of
the loss can be padding, and good short answers are pushed to continue with pads.

## Example

```python
class AllTokens(trl.GRPOTrainer):
    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        output["completion_mask"] = torch.ones_like(output["completion_ids"])
        return output

run = grpo(AllTokens)
```

## Use instead

```python
run = grpo(trl.GRPOTrainer)
```

## Fix safety

There is no automatic fix: build the mask from the number of sampled tokens.

## References

- bingreeky/MemGen#33, huggingface/trl#4970
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from truetune.auditing.rollout_run import Completion, RolloutRun
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rollout.evidence.reasons_rollouts_cannot_judge import NO_SAMPLED_IDS
from truetune.checks.rule import RolloutRule


class RolloutPaddingInLoss(RolloutRule):
    code = "ROL003"
    fault = Fault.PADDING_IN_LOSS
    severity = "error"
    symptoms = ("agent-training", "reward-rises-model-is-worse")
    moot_where = ("stops-unknown-to-trainer",)

    def __init__(self, subject: RolloutRun) -> None:
        super().__init__(subject)
        self.examined = 0

    def unmet(self) -> Unmet | None:
        return super().unmet() or (None if self.examined else NO_SAMPLED_IDS)

    def findings(self) -> Iterator[Finding]:
        cases: list[Case] = []
        wrong = total = 0
        for completion in self.subject.completions():
            foreign = _tokens_not_sampled(completion)
            if foreign is None:
                continue
            self.examined += 1
            total += int(completion.in_loss.sum())
            count = int((foreign & completion.in_loss).sum())
            if count:
                wrong += count
                cases.append(
                    Case(
                        f"{completion.place}: {count:,} of {int(completion.in_loss.sum()):,} tokens"
                    )
                )
        if not cases:
            return
        yield self.finding(
            f"{wrong:,} of {total:,} tokens in the loss were not sampled: padding, or the text of tools, in"
            f" {len(cases):,} of {self.examined:,} completions",
            "leave out of the loss what comes after the last sampled token, and what tools wrote",
            cases=cases,
            count=wrong,
            total=total,
        )

    def measurement_if_clean(self) -> Measurement:
        """How many completions have such tokens in the loss."""
        return make_count_measurement(
            "completions with padding or tool text in the loss", 0, self.examined
        )


def _tokens_not_sampled(completion: Completion) -> NDArray[np.bool_] | None:
    """(tokens,) those that the policy did not sample; None where that is not known."""
    places = completion.places
    if places is not None:
        return ~np.isin(np.arange(len(completion.ids)), places)
    from_tools = completion.step.from_tools
    return None if from_tools is None else np.asarray(from_tools[completion.row])
