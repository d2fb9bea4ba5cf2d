"""The gradient depends on how a batch is split into micro-batches.

## What it does
Runs a few real rows with different numbers of supervised tokens through the trainer's own `training_step`, once as one
batch and once as micro-batches of one row, and compares the gradients of some trained tensors. It is info if the run
does not accumulate.

## Why it is bad
`gradient_accumulation_steps` then changes the size of the steps, and short answers count more. A `compute_loss` that
takes a mean and does not use `num_items_in_batch` is not divided by the Trainer either, because the Trainer assumes
that it was: the gradient is too large by the number of micro-batches. Models whose forward takes `**kwargs` and ignores
`num_items_in_batch` do the same (T5 in transformers 5.23).

## Example

```python
class Loss(transformers.Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        logits = model(inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
        labels = inputs["labels"]
        return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


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
There is no automatic fix. Dividing by `num_items_in_batch` makes gradients smaller: compare the learning rate with
other runs.

## References

- huggingface/transformers#34191, huggingface/transformers#35438, huggingface/transformers#37766
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.law.evidence.is_deeper_law_broken import FORWARD_LAWS, any_law_broken
from truetune.checks.rule import LawRule


class AccumulatedGradientDiffers(LawRule):
    code = "LAW015"
    fault = Fault.GRADIENT_ACCUMULATION_WRONG
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    law = "gradient-accumulation"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        # A forward pass or a loss that is wrong by itself gives other gradients as well: those laws
        # name the cause.
        """The finding that the gradient depends on how a batch is cut into micro-batches."""
        if any_law_broken(
            self.subject, *FORWARD_LAWS, "loss-alive", "loss-targets", "reference-dropout"
        ):
            return
        ratio, rows = evidence["ratio"], evidence["rows"]
        yield self.finding(
            f"{rows} micro-batches of one row give another gradient than one batch with all {rows}: it is"
            f" {ratio:.2f} times as large and differs by {value:.2g} of its size",
            "in compute_loss, divide the sum over tokens by num_items_in_batch, which the Trainer passes; or set"
            " trainer.loss_is_scaled_for_ga = False, so that the Trainer divides a mean by the accumulation"
            " steps",
            # Without accumulation this run has no second micro-batch whose weight could be wrong.
            severity=(
                "error"
                if self.subject.facts["args"].get("gradient_accumulation_steps", 1) > 1
                else "info"
            ),
            evidence=[
                f"cosine of the two gradients: {evidence['cosine']:.4f}",
                f"rounding explains up to {tolerance:.0e}",
            ],
        )
