"""A row's logits depend on the other rows of its batch.

## What it does
Gives the other rows of a real batch other tokens, and compares the logits of the row that stayed, in training mode
without dropout, and in evaluation mode. It fires if they change by more than rounding explains.

## Why it is bad
What a row teaches then depends on its neighbours, and in serving, without them, the model gives other results.
Normalisation over the batch does this, and experts that drop tokens beyond a capacity.

## Example

```python
model.model.norm.register_forward_hook(lambda module, inputs, out: out - out.mean(0, keepdim=True))
run = sft(rows, model)
```

## Use instead

```python
model.model.norm.register_forward_hook(lambda module, inputs, out: out - out.mean(-1, keepdim=True))
run = sft(rows, model)
```

## Fix safety
There is no automatic fix: the layer, or the experts' capacity, is part of the model. Without it, results change.

## References

- Ioffe and Szegedy, Batch Normalization, 2015 (arXiv:1502.03167); Fedus et al., Switch Transformers, 2021
  (arXiv:2101.03961), on the capacity of experts
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import LawRule


class RowsOfABatchSeeEachOther(LawRule):
    code = "LAW002"
    fault = Fault.ATTENTION_MASK_WRONG
    symptoms = ("garbage-output", "odd-metrics")
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    law = "batch-composition"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding that a row's logits depend on the other rows of its batch."""
        training, serving = evidence["by mode"]["training"], evidence["by mode"]["evaluation"]
        # Capacities of experts hold in training mode alone: what is served is right then, and the
        # gradient is not.
        where = "only in training mode, " if serving <= tolerance else ""
        yield self.finding(
            f"{where}other tokens in the other rows of a batch change a row's logits by {value:.2g}"
            f" times the largest logit (rounding explains up to {tolerance:.0e})",
            "remove the layer that mixes rows: normalisation over the batch (dimension 0), or a capacity limit of the"
            " experts",
            evidence=[
                f"training mode: {training:.2g}",
                f"evaluation mode: {serving:.2g}",
                f"batch of {evidence['rows']} rows",
            ],
        )
