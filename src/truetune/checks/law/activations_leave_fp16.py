"""Activations exceed the range of float16.

## What it does
If a run computes in float16, passes a real batch through the model and takes the largest absolute output of each
module. It is an error if one exceeds 65504, and a warning if one exceeds half of that.

## Why it is bad
What overflows is infinite, the loss is NaN or 0.0, and the loss scaler skips every step: the curve is flat. Models that
were trained in bfloat16 often have activations that are too large for float16.

## Example

```python
model = model.to(torch.float16)
model.model.embed_tokens.weight.data *= 3e4
model.model.layers[0].mlp.down_proj.weight.data *= 1e4
model.model.layers[0].post_attention_layernorm.weight.data *= 1e4
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Use instead

```python
model = model.to(torch.float16)
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Fix safety
There is no automatic fix. bfloat16 needs an Ampere GPU or newer; float32 takes twice the memory.

## References

- huggingface/transformers#25021, hiyouga/LLaMA-Factory#3353, huggingface/peft#334
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import LawRule


class ActivationsLeaveFp16(LawRule):
    code = "LAW026"
    fault = Fault.FLOAT16_RANGE_EXCEEDED
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    law = "activation-range"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        # The law's tolerance is half of the range: it looks at one batch, and a later one may hold
        # twice as much. So what is only near the limit is told as well, as a warning.
        """The finding that activations leave the range of float16."""
        beyond = evidence["beyond"]
        yield self.finding(
            (
                f"{beyond} of {evidence['modules']} modules give numbers above float16's largest,"
                " 65504, so they overflow"
                if beyond
                else (
                    f"an activation of {evidence['largest']:.0f} is close to float16's largest number,"
                    " 65504"
                )
            ),
            "train in bfloat16 (bf16=True, fp16=False), or in float32 if the GPU has no bfloat16",
            severity="error" if beyond else "warning",
            evidence=[f"first at {evidence['module']}" if beyond else f"at {evidence['module']}"],
        )
