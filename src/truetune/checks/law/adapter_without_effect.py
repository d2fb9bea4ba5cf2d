"""The adapter that is trained has no effect.

## What it does

Moves the trained weights of the adapter, compares the logits of a real batch before and after, with the adapter on and
off, and puts the weights back to the last bit. With it on they must change, with it off they must not.

## Why it is bad

An adapter that is disabled, merged, not the active one, or on modules that the forward pass never calls can be trained
and saved without a word, and the result answers like the base.

## Example

```python
model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM"))
model.disable_adapter_layers()
for name, weight in model.named_parameters():
    weight.requires_grad = "lora_" in name
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Use instead

```python
model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM"))
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Fix safety

There is no automatic fix.

## References

- huggingface/peft#1323, huggingface/peft#2390, huggingface/trl#4713
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.findings import Finding
from truetune.checks.law.evidence.is_deeper_law_broken import any_law_broken
from truetune.checks.rule import LawRule


class AdapterWithoutEffect(LawRule):
    code = "LAW025"
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    law = "adapter-effect"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        # Switched off, an adapter must move no logit. Half of its effect is chosen, not measured:
        # what leaks is all of it (merged weights, a second wrapper) or nothing; between them lies
        # the noise of the kernels.
        """The finding that the adapter that is trained has no effect."""
        leaks = evidence["leaked"] > evidence["moved"] / 2 > 0
        # Tensors that no gradient reaches can't have an effect: gradient-flow names them.
        if not leaks and any_law_broken(self.subject, "gradient-flow"):
            return
        yield self.finding(
            (
                "the logits change with the adapter's weights even where it is switched off"
                if leaks
                else "other weights of the adapter leave the logits as they are"
            ),
            "put the adapter on modules of the forward pass, enable it (set_adapter), and wrap the"
            " model only once",
            evidence=[
                (
                    f"logits moved by {evidence['moved']:.2g} of the largest with the adapter on,"
                    f" by {evidence['leaked']:.2g} with it off"
                ),
                f"active adapters: {', '.join(evidence['active']) or 'none'}",
                f"trained tensors of the adapter: {evidence['tensors']}",
            ],
        )
