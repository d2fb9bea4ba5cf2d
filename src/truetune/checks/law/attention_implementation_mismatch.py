"""The attention implementation of the run computes something else than eager attention.

## What it does

Runs a padded batch of real rows through the model with the attention implementation of the run, then with `eager`, and
compares the logits of all tokens. It fires where they differ by more than rounding explains, and where the run's own
gives a nan at any place, padded ones too: a nan spreads in the backward pass.

## Why it is bad

Kernels leave out parts of some models: soft-capping, sliding windows, sinks. The loss is near what it should be and the
weights learn to make up for what is missing; served with another kernel, they are wrong.

## Example

```python
def kernel(module, query, key, value, mask, **settings):
    return transformers.AttentionInterface()["sdpa"](module, query, key, value, mask, **{**settings, "scaling": 4.0})

transformers.AttentionInterface.register("kernel_with_another_scale", kernel)
transformers.AttentionMaskInterface.register("kernel_with_another_scale", transformers.AttentionMaskInterface()["sdpa"])
model.set_attn_implementation("kernel_with_another_scale")
run = sft(rows, model)
```

## Use instead

```python
model.set_attn_implementation("sdpa")
run = sft(rows, model)
```

## Fix safety

There is no automatic fix; `attn_implementation="eager"` is always right, and slower.

## References

- huggingface/transformers#32309, huggingface/transformers#32390, Dao-AILab/flash-attention#1065,
  NVIDIA-NeMo/Automodel#2208
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.findings import Finding
from truetune.checks.rule import LawRule


class AttentionImplementationMismatch(LawRule):
    code = "LAW005"
    symptoms = ("good-here-bad-there",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    law = "attention-implementation"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding that the attention implementation of the run computes something else than eager attention."""
        used, strays = evidence["used"], evidence["places with nan"]
        what = (
            f"gives nan at {strays} places of a padded batch"
            if strays
            else (
                f"differs from eager by {value:.2g} of the largest logit (rounding explains"
                f" {tolerance:.0e})"
            )
        )
        yield self.finding(
            f"{used} attention {what}",
            "set attn_implementation to eager, or to one that the model's own documentation names",
            evidence=[
                f"{evidence['rows']} rows of up to {evidence['longest']} tokens, padding included"
            ],
        )
