"""A distillation compares the student's prediction with the teacher's of another token.

## What it does
Reads from the gradient of the trainer's own loss with which prediction of the teacher each of the student is compared.
It fires if that is the one of the token before or after, or if the teacher is given other tokens than the student.

## Why it is bad
The student learns to write what the teacher would write one token later: text with missing or doubled words. The loss
falls as usual.

## Example

```python
import trl.experimental.gkd as gkd


class MyTrainer(gkd.GKDTrainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        read = {"input_ids": inputs["input_ids"], "attention_mask": inputs["attention_mask"]}
        student = model(**read).logits
        with torch.no_grad():
            teacher = self.teacher_model(**read).logits
        loss = self.generalized_jsd_loss(
            student[:, :-1], teacher[:, 1:], inputs["labels"][:, 1:], beta=self.beta
        )
        return (loss, {}) if return_outputs else loss


torch.manual_seed(1)  # weights of its own
teacher = transformers.LlamaForCausalLM(model.config)
run = MyTrainer(model, teacher, args=arguments(gkd.GKDConfig), processing_class=tokenizer,
                train_dataset=datasets.Dataset.from_list(chats()))
```

## Use instead

```python
import trl.experimental.gkd as gkd


class MyTrainer(gkd.GKDTrainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        read = {"input_ids": inputs["input_ids"], "attention_mask": inputs["attention_mask"]}
        student = model(**read).logits
        with torch.no_grad():
            teacher = self.teacher_model(**read).logits
        loss = self.generalized_jsd_loss(
            student[:, :-1], teacher[:, :-1], inputs["labels"][:, 1:], beta=self.beta
        )
        return (loss, {}) if return_outputs else loss


torch.manual_seed(1)  # weights of its own
teacher = transformers.LlamaForCausalLM(model.config)
run = MyTrainer(model, teacher, args=arguments(gkd.GKDConfig), processing_class=tokenizer,
                train_dataset=datasets.Dataset.from_list(chats()))
```

## Fix safety
There is no automatic fix: take the same slice of both logits, and give both models the same ids and mask.

## References

- modelscope/ms-swift#8436
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import LawRule
from truetune.probe.measuring.ways_to_compare_with_teacher import TOKEN_AFTER, TOKEN_BEFORE


class DistillationComparesOtherPositions(LawRule):
    code = "LAW033"
    fault = Fault.DISTILLATION_LEARNS_WRONG_TOKENS
    symptoms = ("loss-does-not-fall",)
    severity = "error"
    law = "distillation"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding that student and teacher are compared at different tokens."""
        others, looked_at = evidence.get("other ways", {}), evidence.get("looked at", 0)
        shifted = sum(count for way, count in others.items() if way in (TOKEN_BEFORE, TOKEN_AFTER))
        calls = evidence.get("other tokens", 0)
        if calls:
            yield self.finding(
                f"the teacher is given other tokens than the student in {calls} of {evidence['calls']} passes",
                "give student and teacher the same input_ids and attention_mask",
                count=calls,
                total=evidence["calls"],
            )
        elif shifted > tolerance * looked_at:
            way = max((TOKEN_BEFORE, TOKEN_AFTER), key=lambda name: int(others.get(name, 0)))
            yield self.finding(
                f"{shifted} of {looked_at} predictions are compared {way}",
                "take the same slice of both in compute_loss: student.logits[:, :-1] and teacher.logits[:, :-1]",
                evidence=[f"{name}: {count} predictions" for name, count in others.items()],
                count=shifted,
                total=looked_at,
            )
