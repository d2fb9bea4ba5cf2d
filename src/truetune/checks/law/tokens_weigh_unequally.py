"""Supervised tokens do not have the same weight in the loss.

## What it does
Reads the weight of each supervised token from the gradient of the trainer's own loss at the last hidden state. It fires
if they differ within one micro-batch; it is info if they differ within a sequence too. Weights on purpose (a
`compute_loss_func`, weights in the batch, DFT) are not reported.

## Why it is bad
If the loss is a mean over each row and then over the rows, a token of a short answer counts many times as much as one
of a long answer. The composition of the batch decides by how much, and the loss curve does not show it.

## Example

```python
class Loss(transformers.Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        logits = model(inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
        labels = inputs["labels"][:, 1:]
        return (torch.nn.functional.cross_entropy(
            logits[:, :-1].transpose(1, 2), labels, reduction="none").sum(1) / (labels != -100).sum(1)).mean()


run = Loss(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
           processing_class=tokenizer)
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
There is no automatic fix. With equal weights, long answers count more than before, and losses can't be compared with
earlier runs.

## References

- huggingface/transformers#34191, huggingface/blog#2414
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.law.evidence.is_deeper_law_broken import any_law_broken
from truetune.checks.rule import LawRule


class TokensWeighUnequally(LawRule):
    code = "LAW014"
    fault = Fault.LOSS_WEIGHS_TOKENS_WRONGLY
    symptoms = ("loss-does-not-fall", "several-gpus", "odd-metrics")
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    law = "loss-weights"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        # Equal within a line and unequal between lines is a mean over each line: the known cause.
        # What differs within a line may be weights that somebody wrote, and is a note.
        """The finding that supervised tokens do not weigh the same in the loss."""
        by_line = [line for line in evidence["by line"] if line["tokens"]]
        means = evidence["within a line"] <= tolerance
        if evidence["asked for"] or any_law_broken(self.subject, "gradient-accumulation"):
            return
        yield self.finding(
            f"in one micro-batch a supervised token weighs up to {1 + value:.2g} times as much as"
            " another"
            + (
                ": each row counts the same, so tokens of short answers count more" if means else ""
            ),
            "in compute_loss, divide the sum over all tokens by num_items_in_batch, unless the weights are intended",
            severity="warning" if means else "info",
            evidence=[
                f"batch {evidence['batch']}, a sequence with {line['tokens']} supervised tokens:"
                f" {line['weight']:.3g} each"
                for line in by_line[:4]
            ],
        )
