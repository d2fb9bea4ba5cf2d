"""The loss leaves out positions that have a label.

## What it does

Runs real batches through the trainer's own loss and looks at its gradient at the last hidden state. It fires where a
labelled position gets none, other than where the model is certain of the token already.

## Why it is bad

The batch says that these tokens are learned, and they are not. A loss that masks the pad token by its id leaves out
every stop token this way where pad and stop token are the same: the model never learns to stop.

## Example

```python
class Loss(transformers.Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        logits = model(inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
        labels = inputs["labels"].masked_fill(inputs["labels"] == tokenizer.eos_token_id, -100)
        return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


run = Loss(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
           processing_class=tokenizer)
```

## Use instead

```python
class Loss(transformers.Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        logits = model(inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
        labels = inputs["labels"]
        return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


run = Loss(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
           processing_class=tokenizer)
```

## Fix safety

There is no automatic fix.

## References

- huggingface/transformers#23530, huggingface/trl#3200
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.findings import Finding
from truetune.checks.law.places import lines
from truetune.checks.rule import LawRule


class LabelledPositionsWithoutGradient(LawRule):
    code = "TT055"
    severity = "error"
    law = "loss-targets"

    def broken(self, value: float, tolerance: float, evidence: dict[str, Any]) -> Iterator[Finding]:
        count, total = evidence["without gradient"], evidence["labelled"]
        if count <= tolerance * total:
            return
        yield self.finding(
            f"{count} of {total} labelled positions get no gradient from the loss",
            "let the loss cover every position that has a label, the stop tokens with them",
            evidence=lines(evidence["places"]["without gradient"]),
            count=count,
            total=total,
        )
