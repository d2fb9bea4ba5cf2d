"""Most weights are too large for a step to change them.

## What it does
Compares the highest learning rate of the run, which is about the size of an Adam step, with the spacing of numbers in
the dtype of the trained weights. It fires if a step is less than half of the spacing for more than half of the weights.

## Why it is bad
bfloat16 has 8 significant bits: near 0.02 its numbers are 0.0001 apart. A step of 0.00001 is rounded away, at every
step, however long the training. The loss falls a little, through the smallest weights only, and the norms stay at
exactly 1.0.

## Example

```python
run = transformers.Trainer(model.to(torch.bfloat16), arguments(learning_rate=1e-5),
                           transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows), processing_class=tokenizer)
```

## Use instead

```python
run = transformers.Trainer(model, arguments(learning_rate=1e-5, bf16=True),
                           transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows), processing_class=tokenizer)
```

## Fix safety
There is no automatic fix. Weights in float32 take twice the memory.

## References

- huggingface/sentence-transformers#3773, pytorch/torchtune#2254, pytorch/ao#1124
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import LawRule


class UpdatesSmallerThanRounding(LawRule):
    code = "LAW020"
    fault = Fault.UPDATES_ROUNDED_AWAY
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    law = "update-rounding"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding that most weights are too large for a step to change them."""
        yield self.finding(
            f"{value:.0%} of the trained weights never change: a step of"
            f" {evidence['rate']:.0e} is less than half of the spacing of numbers of their size in"
            f" {', '.join(evidence['dtypes'])}",
            "load the weights in float32 (dtype=torch.float32) and set bf16=True (autocast), or use an optimizer with"
            " stochastic rounding",
            evidence=[f"{name}: {share:.0%}" for name, share in evidence["by tensor"].items()],
            count=evidence["stuck"],
            total=evidence["weights"],
        )
