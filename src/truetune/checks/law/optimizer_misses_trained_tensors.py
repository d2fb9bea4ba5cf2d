"""The optimizer lacks tensors that should be trained.

## What it does
Compares the tensors of the model that require a gradient with those in the optimizer's groups.

## Why it is bad
These tensors get gradients and count as trained, but never change. It happens if the optimizer is built before the
adapter is added, the embeddings are resized, or a layer is unfrozen: it then updates tensors that are no longer used.

## Example

```python
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
model.resize_token_embeddings(len(tokenizer) + 8)
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer, optimizers=(optimizer, None))
```

## Use instead

```python
model.resize_token_embeddings(len(tokenizer) + 8)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer, optimizers=(optimizer, None))
```

## Fix safety
There is no automatic fix: build the optimizer last. More tensors are then trained, and need memory for their states.

## References

- huggingface/transformers#25729, huggingface/peft#1300
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import LawRule


class OptimizerMissesTrainedTensors(LawRule):
    code = "LAW019"
    fault = Fault.NO_WEIGHT_TRAINED
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    law = "gradient-flow"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding that the optimizer does not hold tensors that are to be trained."""
        lost = evidence.get("outside the optimizer", {"count": 0})
        if not lost["count"]:
            return
        foreign = f"; it has {lost['foreign']} that are not the model's" if lost["foreign"] else ""
        yield self.finding(
            f"the optimizer lacks {lost['count']} of {evidence['trained']} trained"
            f" tensors{foreign}",
            "build the optimizer last: after adding adapters, resizing embeddings, unfreezing, and moving the model to"
            " a device",
            evidence=lost["names"],
            count=lost["count"],
            total=evidence["trained"],
        )

    def unmet(self) -> Unmet | None:
        """Also unmet where the optimizer of the loop is not known."""
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        # A trainer makes its optimizer itself. A loop's is known only where the run was started by
        # us, which sees the first call of its step().
        known = self.subject.laws[self.law]["evidence"].get("optimizer is known", True)
        return (
            None
            if known
            else Unmet("the optimizer of the loop is not known", "start it with truetune run")
        )
