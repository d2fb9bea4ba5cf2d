"""A distillation moves the student away from the teacher, or uses the opposite KL divergence.

## What it does
Reads from the gradient of the trainer's own loss which divergence is made smaller, and whether it is made smaller. It
fires if that is the divergence of `1 - beta`, or if the student moves away from the teacher.

## Why it is bad
The forward KL divergence (`beta=0`) makes the student cover all that the teacher may say, the reverse one (`beta=1`)
makes it keep to what the teacher says most. With the two exchanged a student is diffuse, or narrow, for no visible
reason.

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
            teacher[:, :-1], student[:, :-1], inputs["labels"][:, 1:], beta=self.beta
        )
        return (loss, {}) if return_outputs else loss


torch.manual_seed(1)  # weights of its own
teacher = transformers.LlamaForCausalLM(model.config)
run = MyTrainer(model, teacher, args=arguments(gkd.GKDConfig, beta=0.1), processing_class=tokenizer,
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
run = MyTrainer(model, teacher, args=arguments(gkd.GKDConfig, beta=0.1), processing_class=tokenizer,
                train_dataset=datasets.Dataset.from_list(chats()))
```

## Fix safety
There is no automatic fix. Releases of TRL from before huggingface/trl#3043 (March 2025) had the two exchanged: turn a
beta that was tuned with them round.

## References

- huggingface/trl#3043, huggingface/trl#4935, paiml/aprender#2153
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import LawRule
from truetune.probe.measuring.ways_to_compare_with_teacher import OPPOSITE


class DistillationHasWrongDirection(LawRule):
    code = "LAW034"
    fault = Fault.TEACHER_FOLLOWED_WRONGLY
    symptoms = ("loss-does-not-fall",)
    severity = "error"
    law = "distillation"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding that another divergence is made smaller, or that it is made larger."""
        looked_at = evidence.get("looked at", 0)
        away = evidence.get("away", 0)
        opposite = evidence.get("other ways", {}).get(OPPOSITE, 0)
        if away > tolerance * looked_at:
            yield self.finding(
                f"{away} of {looked_at} predictions of the student are moved away from the teacher's",
                "remove the minus sign before the divergence in compute_loss: the loss is to be minimized",
                count=away,
                total=looked_at,
            )
        elif opposite > tolerance * looked_at:
            beta = evidence["beta"]
            yield self.finding(
                f"the loss has beta={1 - beta:.2g} for {opposite} of {looked_at} predictions, and the settings say"
                f" beta={beta:.2g}",
                "give the student's logits first and the teacher's second to generalized_jsd_loss; F.kl_div(log_q,"
                " log_p) is KL(p || q)",
                count=opposite,
                total=looked_at,
            )
