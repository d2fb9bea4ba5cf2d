"""The reward model's loss compares the chosen answer of one prompt with the rejected answer of another.

## What it does
Runs real batches through the trainer's own loss, and reads from its second derivative by the scores which two it
compares. It fires if a chosen answer is compared with rejected answers of other rows alone.

## Why it is bad
Answers to two prompts differ most in what they are about. The model learns which prompts it saw on which side, and the
loss falls; between two answers to one prompt it can't tell.

## Example

```python
class MyTrainer(trl.RewardTrainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        chosen, rejected = model(**inputs).logits.squeeze(-1).chunk(2)
        loss = -torch.nn.functional.logsigmoid(chosen - rejected.flip(0)).mean()
        return (loss, {}) if return_outputs else loss


run = MyTrainer(reward_model(), args=arguments(trl.RewardConfig), processing_class=tokenizer,
                train_dataset=datasets.Dataset.from_list(pairs()))
```

## Use instead

```python
class MyTrainer(trl.RewardTrainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        chosen, rejected = model(**inputs).logits.squeeze(-1).chunk(2)
        loss = -torch.nn.functional.logsigmoid(chosen - rejected).mean()
        return (loss, {}) if return_outputs else loss


run = MyTrainer(reward_model(), args=arguments(trl.RewardConfig), processing_class=tokenizer,
                train_dataset=datasets.Dataset.from_list(pairs()))
```

## Fix safety
There is no automatic fix: compare row by row. A loss that compares each chosen answer with all answers of the batch,
its own rejected one among them, is not reported.

## References

- huggingface/trl#191, https://arxiv.org/abs/2009.01325 (section 3.4: two summaries of one post)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import LawRule


class RewardLossComparesOtherPairs(LawRule):
    code = "LAW029"
    fault = Fault.REWARD_MODEL_LEARNS_WRONG_ORDER
    symptoms = ("odd-metrics",)
    severity = "error"
    law = "reward-loss"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding that answers to different prompts are compared."""
        mixed, pairs = evidence["mixed"], evidence["pairs"]
        if not mixed:
            return
        yield self.finding(
            f"{mixed} of {pairs} chosen answers are compared with the rejected answer to another prompt",
            "compare chosen and rejected scores row by row in compute_loss: do not sort, shuffle or shift one side"
            " alone",
            evidence=[
                f"batch {one['batch']}: the chosen answer of row {one['row']} is compared with the rejected answer of"
                f" row {one['with']}"
                for one in evidence["mixed places"]
            ],
            count=mixed,
            total=pairs,
        )
