"""The loss ignores positions that have a label.

## What it does
Runs real batches through the trainer's own loss and reads its gradient at the last hidden state. It fires if a labelled
position gets none, unless the model is already certain of the token.

## Why it is bad
The batch says that these tokens are in the loss, but they are not. A loss that masks the pad token by its id leaves out
every stop token if pad and stop token are the same: the model never learns to stop.

## Example

```python
def compute(outputs, labels, num_items_in_batch=None):
    labels = labels[:, 1:].masked_fill(labels[:, 1:] == tokenizer.eos_token_id, -100).flatten()
    total = torch.nn.functional.cross_entropy(outputs.logits[:, :-1].flatten(0, 1), labels, reduction="sum")
    return total / (num_items_in_batch or (labels != -100).sum())


run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer, compute_loss_func=compute)
```

## Use instead

```python
def compute(outputs, labels, num_items_in_batch=None):
    logits, labels = outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    total = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
    return total / (num_items_in_batch or (labels != -100).sum())


run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer, compute_loss_func=compute)
```

## Fix safety
There is no automatic fix: correct the loss in your code. The loss then includes more tokens.

## References

- huggingface/transformers#23530, huggingface/trl#3200
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.law.evidence.describe_tokens_taught_by_loss import (
    are_targets_mostly_other_tokens,
    describe_positions,
)
from truetune.checks.rule import LawRule


class LabelledPositionsWithoutGradient(LawRule):
    code = "LAW013"
    fault = Fault.ANSWERS_MISSING_FROM_LOSS
    symptoms = ("loss-does-not-fall",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    law = "loss-targets"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding that the loss leaves out positions that have a label."""
        count, total = evidence["without gradient"], evidence["labelled"]
        # A shift leaves labelled positions out at one end of each answer and adds others at the
        # other end.
        if count <= tolerance * total or are_targets_mostly_other_tokens(evidence):
            return
        yield self.finding(
            f"{count} of {total} labelled positions get no gradient from the loss",
            "change compute_loss so that it covers every position whose label is not -100, including the stop tokens",
            evidence=describe_positions(evidence["places"]["without gradient"]),
            count=count,
            total=total,
        )
