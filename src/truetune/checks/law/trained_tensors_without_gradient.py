"""Trained tensors get no gradient, or no tensor is trained.

## What it does
Runs the forward and backward pass of real batches and lists the trained tensors whose gradient is missing or all zero.
What is normal at the start does not count: a LoRA factor whose partner starts at zero, an expert that got no token. It
is a warning if only single tensors outside an adapter get none.

## Why it is bad
The count of trained parameters looks right, but some of them can't learn: an adapter that is disabled, sits on modules
that the forward pass never calls (a vision tower, an unused head), or was loaded frozen.

## Example

```python
class Model(transformers.LlamaForCausalLM):
    def __init__(self, config):
        super().__init__(config)
        self.vision = torch.nn.Linear(32, 32)


model = peft.get_peft_model(Model(model.config), peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["vision"]))
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Use instead

```python
model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"]))
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Fix safety
There is no automatic fix. Other `target_modules` make another adapter, which has to be trained from the start.

## References

- haotian-liu/LLaVA#1380, unslothai/unsloth-zoo#1150, huggingface/peft#1142
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import LawRule


class TrainedTensorsWithoutGradient(LawRule):
    code = "LAW018"
    fault = Fault.NO_WEIGHT_TRAINED
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    law = "gradient-flow"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding that trained tensors get no gradient, or none is trained."""
        if not evidence["trained"]:
            yield self.finding(
                "no tensor is trained" + (": the adapter is frozen" if evidence["adapter"] else ""),
                "load the adapter with PeftModel.from_pretrained(..., is_trainable=True), or set"
                " requires_grad_(True) on the weights to train",
            )
            return
        without, trained, adapters = (
            evidence["without"],
            evidence["trained"],
            evidence["adapter tensors"],
        )
        # All of an adapter without a gradient is as bad as all of the model: the rest may be a
        # head.
        every = without == trained or (adapters and evidence["in the adapter"] == adapters)
        # With checkpointing on, gradient-checkpointing-kills-grads tells it, with the setting that
        # cures it.
        if not without or (evidence["checkpointing"] and every):
            return
        yield self.finding(
            f"{without} of {trained} trained tensors get no gradient from the first batches"
            + (f" ({evidence['in the adapter']} of {adapters} in the adapter)" if adapters else ""),
            "choose target_modules that the forward pass of this data uses, and freeze the"
            " tensors that it does not use",
            # Single tensors of a whole model may be unused by this data: experts, a vision tower, a
            # pooler.
            severity="error" if every or evidence["in the adapter"] else "warning",
            evidence=evidence["names"],
            count=without,
            total=trained,
        )
