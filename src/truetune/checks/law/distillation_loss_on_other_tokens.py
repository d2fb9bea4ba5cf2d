"""A distillation learns prompt tokens or padding, or leaves tokens of the completion out.

## What it does
Runs real batches through the trainer's own loss and reads from its gradient which predictions of the student it
changes. It fires if these are not the predictions of the completion's tokens, its stop token included. For TRL's
`DistillationTrainer`, whose completions are sampled, a made-up completion is taken.

## Why it is bad
The student learns how the teacher would continue the question, or not when to stop. The loss falls as usual.

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
            student, teacher, inputs["labels"], beta=self.beta
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
There is no automatic fix: logits at one position predict the next token, so labels are shifted by one against them.

## References

- modelscope/ms-swift#8436, huggingface/trl#6006
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import LawRule


class DistillationLossOnOtherTokens(LawRule):
    code = "LAW032"
    fault = Fault.DISTILLATION_LEARNS_WRONG_TOKENS
    symptoms = ("nothing-is-learned",)
    severity = "error"
    law = "distillation"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding that predictions of other tokens than the completion's are in the loss."""
        beside, missing = evidence.get("beside", 0), evidence.get("missing", 0)
        if not beside and not missing:
            return
        yield self.finding(
            f"{beside} of {evidence['in the loss']} predictions in the distillation loss are not of completion tokens,"
            f" and {missing} of completion tokens are left out",
            "shift and mask once in compute_loss: logits[:, :-1] with labels[:, 1:], where labels are -100 for prompt"
            " and padding",
            evidence=[
                f"batch {one['batch']}, line {one['line']}, position {one['position']}: "
                + (
                    f"{one['token']!r} is in the loss"
                    if one["token"]
                    else "what follows the last token is in the loss"
                )
                for one in evidence["beside places"]
            ],
            count=beside + missing,
            total=evidence["in the loss"] + missing,
        )
