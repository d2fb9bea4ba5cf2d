"""The attention implementation of the run gives other results than eager attention.

## What it does
Runs a padded batch of real rows through the model with the attention implementation of the run, then with `eager`, and
compares the logits of all tokens. It fires if they differ by more than rounding explains. It also fires if the run's
own gives NaN at any position, including padding: a NaN spreads in the backward pass.

## Why it is bad
Some kernels lack parts of some models: soft-capping, sliding windows, sinks. The loss is near the right one and the
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
There is no automatic fix. `attn_implementation="eager"` is always right, but slower and needs more memory.

## References

- huggingface/transformers#32309, huggingface/transformers#32390, Dao-AILab/flash-attention#1065,
  NVIDIA-NeMo/Automodel#2208
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import LawRule


class AttentionImplementationMismatch(LawRule):
    code = "LAW005"
    fault = Fault.ATTENTION_OR_CACHE_CHANGES_RESULTS
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
            f"gives NaN at {strays} positions of a padded batch"
            if strays
            else (
                f"differs from eager attention by {value:.2g} times the largest logit (rounding explains up to"
                f" {tolerance:.0e})"
            )
        )
        yield self.finding(
            f"{used} attention {what}",
            'load the model with attn_implementation="eager", or with one that the model\'s documentation names',
            evidence=[
                f"{evidence['rows']} rows of up to {evidence['longest']} tokens, padding included"
            ],
        )
