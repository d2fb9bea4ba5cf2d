"""A step of the optimizer moves the chosen answer's score below the rejected one's.

## What it does
Makes a step with the run's own optimizer on one pair, compares it with the gradient of chosen minus rejected score, and
restores the weights. It fires if the step lowers this margin for most of three pairs. It is measured when all laws are
requested.

## Why it is bad
The training increases its loss. With a small learning rate the loss just does not fall.

## Example

```python
class MyTrainer(trl.RewardTrainer):
    def create_optimizer(self, model=None):
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.args.learning_rate, maximize=True)
        return self.optimizer


run = MyTrainer(reward_model(), args=arguments(trl.RewardConfig), processing_class=tokenizer,
                train_dataset=datasets.Dataset.from_list(pairs()))
```

## Use instead

```python
class MyTrainer(trl.RewardTrainer):
    def create_optimizer(self, model=None):
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.args.learning_rate)
        return self.optimizer


run = MyTrainer(reward_model(), args=arguments(trl.RewardConfig), processing_class=tokenizer,
                train_dataset=datasets.Dataset.from_list(pairs()))
```

## Fix safety
There is no automatic fix.

## References

- https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html (maximize)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.law.evidence.is_deeper_law_broken import any_law_broken
from truetune.checks.rule import LawRule


class StepLowersRewardMargin(LawRule):
    code = "LAW031"
    fault = Fault.REWARD_MODEL_LEARNS_WRONG_ORDER
    symptoms = ("odd-metrics",)
    severity = "error"
    law = "reward-step"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding that the optimizer steps against the margin."""
        # A loss that is turned round itself is told by its own rule.
        if any_law_broken(self.subject, "reward-loss"):
            return
        falling, pairs = evidence["falling"], evidence["pairs"]
        yield self.finding(
            f"a step of the optimizer lowers chosen minus rejected score for {falling} of {pairs} pairs, though the"
            " loss asks for the opposite",
            "let the optimizer minimize the loss: remove maximize=True, and any minus sign between loss and step",
            count=falling,
            total=pairs,
        )
