"""The loss of a micro-batch is not finite.

## What it does
Computes the trainer's own loss on the first micro-batches that have labels. It fires if one is NaN or infinite.

## Why it is bad
The Trainer's log leaves out NaN, so its curve looks fine. The first step with such a loss makes every trained weight
NaN.

## Example

```python
class Loss(transformers.Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        loss = model(**inputs).loss
        return (loss - 5).sqrt() - (loss - 9).sqrt()


run = Loss(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
           processing_class=tokenizer)
```

## Use instead

```python
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Fix safety
There is no automatic fix: rows or the loss function have to be corrected before any step is made.

## References

- Goekdeniz-Guelmez/mlx-lm-lora#65, huggingface/trl#1380, huggingface/transformers#25021
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.law.evidence.is_deeper_law_broken import any_law_broken
from truetune.checks.rule import LawRule


class LossNotFiniteAtTheStart(LawRule):
    code = "LAW027"
    fault = Fault.LOSS_OR_WEIGHTS_NOT_FINITE
    symptoms = ("loss-does-not-fall",)
    severity = "error"
    since = "0.1.0"
    law = "loss-alive"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        # Activations beyond float16 become inf and the loss nan: that rule says where it begins.
        """The finding that the loss of a micro-batch is not finite."""
        if any_law_broken(self.subject, "activation-range"):
            return
        dead, total = evidence["dead"], evidence["batches"]
        yield self.finding(
            f"the loss of {len(dead)} of the first {total} micro-batches is not finite",
            "before training, count the labels of these batches ((labels != -100).sum()), and check the loss function"
            " for a division by 0, a root or a logarithm of a negative number",
            evidence=[f"batch {number}: loss {loss}" for number, loss in dead.items()],
            count=len(dead),
            total=total,
        )
