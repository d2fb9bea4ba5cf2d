"""Gradient checkpointing changes or loses gradients.

## What it does
Computes next-token loss and gradients of one real row twice: with the checkpointing of the run, and without. It fires
if a tensor loses its gradient or gets another one, or if the loss differs. If checkpointing is on and gradients are
lost, `gradient-checkpointing-kills-grads` reports that instead.

## Why it is bad
The run trains only a part of the weights, or in another direction, and only a slightly worse loss curve shows it.
Without the random state, dropout differs when a layer is computed again. Reentrant checkpointing over frozen embeddings
gives no gradient to the layers above them.

## Example

```python
gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=4))
options = {"use_reentrant": False, "preserve_rng_state": False}
settings = arguments(gradient_checkpointing=True, gradient_checkpointing_kwargs=options)
run = transformers.Trainer(gpt2, settings, transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Use instead

```python
gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=4))
options = {"use_reentrant": False, "preserve_rng_state": True}
settings = arguments(gradient_checkpointing=True, gradient_checkpointing_kwargs=options)
run = transformers.Trainer(gpt2, settings, transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Fix safety
There is no automatic fix. `use_reentrant: False` with the random state kept (the default) gives the same gradients as
no checkpointing.

## References

- huggingface/transformers#21381, huggingface/transformers#26221, huggingface/transformers#42494, huggingface/trl#3089,
  huggingface/peft#1142
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import LawRule


class CheckpointingChangesGradients(LawRule):
    code = "LAW007"
    fault = Fault.CHECKPOINTING_HARMS_GRADIENTS
    symptoms = ("loss-does-not-fall",)
    severity = "error"
    since = "0.1.0"
    law = "checkpointing"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding that checkpointing of activations changes or loses gradients."""
        lost = evidence["tensors lost"]
        flow = self.subject.laws.get("gradient-flow", {}).get("evidence", {})
        # With checkpointing on, gradient-checkpointing-kills-grads counts the same tensors.
        if lost and flow.get("checkpointing") and flow.get("without"):
            return
        what = (
            f"{lost} of {evidence['tensors']} trained tensors lose their gradient with checkpointing"
            if lost
            else f"checkpointing changes {evidence['worst']}"
            + ("" if evidence["worst"] == "the loss" else "'s gradient")
            + f" by {value:.2g} of its size (rounding explains up to {tolerance:.0e})"
        )
        yield self.finding(
            what,
            'set gradient_checkpointing_kwargs={"use_reentrant": False} with no other option, or call'
            " model.enable_input_require_grads()",
            evidence=[
                f"loss {evidence['loss']:.6g} with checkpointing, {evidence['loss without']:.6g} without",
                *evidence["lost"][:4],
            ],
            count=lost or None,
            total=evidence["tensors"],
        )
