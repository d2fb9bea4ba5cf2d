"""The trained adapter has no effect.

## What it does
Changes the trained weights of the adapter, compares the logits of a real batch before and after, with the adapter
enabled and disabled, and restores the weights exactly. When it is enabled the logits must change, and when it is
disabled they must not.

## Why it is bad
An adapter that is disabled, merged, not the active one, or on modules that the forward pass never calls can be trained
and saved without a message. The result answers like the base.

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
There is no automatic fix. Once the adapter is enabled, training changes the answers.

## References

- huggingface/peft#1323, huggingface/peft#2390, huggingface/trl#4713
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.law.evidence.is_deeper_law_broken import any_law_broken
from truetune.checks.rule import LawRule


class AdapterWithoutEffect(LawRule):
    code = "LAW025"
    fault = Fault.ADAPTER_EMPTY_OR_INEFFECTIVE
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
                "the logits change with the adapter's weights even when it is disabled"
                if leaks
                else "changing the adapter's weights does not change the logits"
            ),
            "enable the adapter (model.set_adapter(NAME), model.enable_adapter_layers()), put it on modules of the"
            " forward pass (target_modules), and wrap the model only once",
            evidence=[
                (
                    f"with the adapter enabled the logits change by {evidence['moved']:.2g} times the largest logit,"
                    f" disabled by {evidence['leaked']:.2g}"
                ),
                f"active adapters: {', '.join(evidence['active']) or 'none'}",
                f"trained tensors of the adapter: {evidence['tensors']}",
            ],
        )
