"""The key-value cache changes what the model computes.

## What it does
Runs one real row without the cache (as training does), in one pass with it, and token by token (as generation does),
and compares the logits. It fires if they differ by more than rounding explains.

## Why it is bad
Training turns the cache off. If late layers read the keys of earlier ones from the cache, the model trains as another
model than the one that is served: its loss starts high, and it gets worse than the base.

## Example

```python
def late(module, args, kwargs):
    if kwargs.get("past_key_values") is None:
        kwargs["hidden_states"] = torch.zeros_like(kwargs["hidden_states"])
    return args, kwargs

model.model.layers[1].self_attn.register_forward_pre_hook(late, with_kwargs=True)
run = sft(rows, model)
```

## Use instead

```python
run = sft(rows, model)
```

## Fix safety
There is no automatic fix. Update the library with the model's code, or train with `use_cache=True` and without gradient
checkpointing, which takes more memory.

## References

- google-gemma/cookbook#346, huggingface/transformers#45253, unslothai/unsloth-zoo#813, unslothai/unsloth-zoo#1275
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import LawRule


class KvCacheChangesLogits(LawRule):
    code = "LAW006"
    fault = Fault.ATTENTION_OR_CACHE_CHANGES_RESULTS
    symptoms = ("slow-generation",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    law = "cache"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        # One pass is how training reads a row, token by token is how an answer is written: where
        # only the second differs, training is right and generation is wrong.
        """The finding that the key-value cache changes what the model computes."""
        at_once = evidence["by way"]["one pass"] <= tolerance
        how = "token by token" if at_once else "in one pass"
        yield self.finding(
            f"with the cache, {how}, the logits differ by {value:.2g} times the largest logit from those"
            f" without it, as in training (rounding explains up to {tolerance:.0e})",
            (
                "update the library that contains this model's code (transformers)"
                if at_once
                else (
                    "update the library that contains this model's code (transformers); until then train with"
                    " use_cache=True and without gradient checkpointing"
                )
            ),
            evidence=[
                f"{name}: {difference:.2g}" for name, difference in evidence["by way"].items()
            ],
        )
