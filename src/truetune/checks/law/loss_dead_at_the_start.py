"""The loss of a micro-batch is not finite, or teaches nothing.

## What it does

Computes the trainer's own loss of the first micro-batches that have labels, and its gradient. It fires where one is
not finite, or where the gradient of all tensors looked at is exactly zero.

## Why it is bad

The Trainer's log leaves out what is nan, and a detached loss looks like any other number: the run goes on for days and
learns nothing, or its first step makes all weights nan.

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

There is no automatic fix.

## References

- Goekdeniz-Guelmez/mlx-lm-lora#65, huggingface/trl#1380, huggingface/transformers#25021
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.findings import Finding
from truetune.checks.rule import LawRule


class LossDeadAtTheStart(LawRule):
    code = "TT069"
    severity = "error"
    law = "loss-alive"

    def broken(self, value: float, tolerance: float, evidence: dict[str, Any]) -> Iterator[Finding]:
        flow = self.subject.laws.get("gradient-flow", {})
        range_ = self.subject.laws.get("activation-range", {})
        other = [law for law in (flow, range_) if "value" in law and not law["value"] <= law["tolerance"]]
        if other:
            return
        dead, total = evidence["dead"], evidence["batches"]
        yield self.finding(
            f"{len(dead)} of the first {total} micro-batches have a loss that is not finite, or no gradient",
            "look at the rows of these batches and at the loss function before any step is taken",
            evidence=[f"batch {one['batch']}: loss {one['loss']:.4g}, gradient {one['gradient']:.4g}" for one in dead],
            count=len(dead),
            total=total,
        )
