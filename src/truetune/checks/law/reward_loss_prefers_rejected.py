"""The reward model's loss raises the score of the rejected answer.

## What it does
Runs real batches through the trainer's own loss, with every score set to 0, and reads from its gradient whose
score is to rise. It fires if that is not the answer in the column `chosen`.

## Why it is bad
The loss falls as usual, and the model learns to score bad answers above good ones. A policy that is trained with it is
paid for the answers that people rejected.

## Example

```python
class MyTrainer(trl.RewardTrainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        rejected, chosen = model(**inputs).logits.squeeze(-1).chunk(2)
        loss = -torch.nn.functional.logsigmoid(chosen - rejected).mean()
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
There is no automatic fix: exchange the two sides where the loss reads them. TRL's collator puts all chosen answers
before all rejected ones.

## References

- huggingface/trl#191, HarderThenHarder/transformers_tasks#15
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import LawRule


class RewardLossPrefersRejected(LawRule):
    code = "LAW028"
    fault = Fault.REWARD_MODEL_LEARNS_WRONG_ORDER
    symptoms = ("odd-metrics",)
    severity = "error"
    law = "reward-loss"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding that the loss raises the scores of rejected answers."""
        turned, pairs = evidence["turned"], evidence["pairs"]
        if not turned:
            return
        yield self.finding(
            f"for {turned} of {pairs} pairs the loss does not raise the score of the chosen answer above that of the"
            " rejected one",
            "exchange the two sides in compute_loss: -logsigmoid(chosen - rejected), with the chosen answers in the"
            " first half of TRL's batch",
            evidence=[
                f"batch {one['batch']}, row {one['row']}: gradient of the loss by the chosen score"
                f" {one['chosen']:+.2g}, by the rejected score {one['rejected']:+.2g}"
                for one in evidence["turned places"]
            ],
            count=turned,
            total=pairs,
        )
