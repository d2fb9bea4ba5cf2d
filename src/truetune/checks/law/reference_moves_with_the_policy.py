"""The reference shares weights with the policy.

## What it does
Changes trained weights, computes the reference's log-probabilities of a real pair before and after, and restores the
weights exactly. The log-probabilities must not change.

## Why it is bad
The rewards stay at 0 whatever is learned: the loss stays at 0.6931, or the penalty that keeps the policy near its start
is gone. `copy.copy` of a model does not copy its weights.

## Example

```python
reference = transformers.LlamaForCausalLM(model.config)
reference.model, reference.lm_head = model.model, model.lm_head
run = trl.DPOTrainer(model, ref_model=reference, args=arguments(trl.DPOConfig), processing_class=tokenizer,
                     train_dataset=datasets.Dataset.from_list(pairs()))
```

## Use instead

```python
import copy

run = trl.DPOTrainer(model, ref_model=copy.deepcopy(model), args=arguments(trl.DPOConfig), processing_class=tokenizer,
                     train_dataset=datasets.Dataset.from_list(pairs()))
```

## Fix safety
There is no automatic fix. A separate reference takes the memory of a second model, unless an adapter is trained (then
TRL disables the adapter for it).

## References

- huggingface/trl#1365, huggingface/trl#2423
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import LawRule


class ReferenceMovesWithThePolicy(LawRule):
    code = "LAW024"
    fault = Fault.REFERENCE_IS_NOT_THE_START
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    law = "reference-still"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding that the reference shares weights with the policy."""
        yield self.finding(
            f"the reference's log-probabilities change by {value:.2g} per token when the trained"
            " weights change",
            "pass a separate copy as the reference (ref_model=copy.deepcopy(model)), or leave ref_model out so that"
            " the trainer makes one",
            evidence=[f"rounding explains up to {tolerance:.0e} per token"],
        )
