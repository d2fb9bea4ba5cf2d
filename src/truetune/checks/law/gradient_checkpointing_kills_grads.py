"""Gradient checkpointing cuts off the gradients of the trained weights.

## What it does
Runs the forward and backward pass of real batches in the run's own mode. It fires if gradient checkpointing is on and
trained tensors get no gradient.

## Why it is bad
The older, reentrant form of checkpointing needs an input that requires a gradient. Over frozen embeddings there is
none: a warning is printed, the loss is flat, and nothing is learned.

## Example

```python
model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM"))
model.disable_input_require_grads() if hasattr(model, "_require_grads_hook") else None
for part in model.modules():
    if hasattr(part, "gradient_checkpointing"):
        part.gradient_checkpointing = True
        part._gradient_checkpointing_func = torch.utils.checkpoint.checkpoint
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Use instead

```python
model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM"))
model.gradient_checkpointing_enable({"use_reentrant": False})
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Fix safety
There is no automatic fix. `use_reentrant: False` gives the same results as no checkpointing.

## References

- huggingface/transformers#21381, huggingface/transformers#42494, huggingface/peft#1142
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import LawRule


class GradientCheckpointingKillsGrads(LawRule):
    code = "LAW017"
    fault = Fault.CHECKPOINTING_HARMS_GRADIENTS
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    law = "gradient-flow"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding that gradient checkpointing cuts the adapter off from the loss."""
        if not (evidence["trained"] and evidence["checkpointing"] and evidence["without"]):
            return
        # Tensors outside of the forward pass have no gradient without checkpointing either: the
        # other rule on gradient-flow tells them. Where even the loss has no graph, all of it is
        # checkpointing's doing.
        if (
            evidence["loss has a graph"]
            and evidence["without"] == evidence["never reached"] < evidence["trained"]
        ):
            return
        yield self.finding(
            f"{evidence['without']} of {evidence['trained']} trained tensors get no gradient while"
            " gradient checkpointing is on",
            'set gradient_checkpointing_kwargs={"use_reentrant": False} in the training arguments, or call'
            " model.enable_input_require_grads() before training",
            evidence=evidence["names"],
            count=evidence["without"],
            total=evidence["trained"],
        )
