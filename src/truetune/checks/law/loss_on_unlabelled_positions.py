"""The loss teaches positions that have no label.

## What it does
Runs real batches through the trainer's own loss and checks where its gradient at the last hidden state is not zero. It
fires if that is so at positions without a label (-100, or 0 in the completion mask). For ORPO, whose likelihood term
covers the prompt by design, it is info.

## Why it is bad
The batch looks right and every check of its labels passes, but the model learns to write prompts, headers or padding
all the same: the loss ignores the mask, or a fused kernel drops it.

## Example

```python
class Loss(transformers.Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        logits = model(inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits[:, :-1].flatten(0, 1)
        total = torch.nn.functional.cross_entropy(logits, inputs["input_ids"][:, 1:].flatten(), reduction="sum")
        items = num_items_in_batch or (inputs["labels"] != -100).sum()
        return total / items * self.accelerator.num_processes


run = Loss(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
           processing_class=tokenizer)
```

## Use instead

```python
class Loss(transformers.Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        logits = model(inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits[:, :-1].flatten(0, 1)
        total = torch.nn.functional.cross_entropy(logits, inputs["labels"][:, 1:].flatten(), reduction="sum")
        items = num_items_in_batch or (inputs["labels"] != -100).sum()
        return total / items * self.accelerator.num_processes


run = Loss(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
           processing_class=tokenizer)
```

## Fix safety
There is no automatic fix: correct the loss in your code. It then includes fewer tokens, and can't be compared with
earlier runs.

## References

- huggingface/trl#3484, huggingface/trl#3781, huggingface/trl#2527
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


class LossOnUnlabelledPositions(LawRule):
    code = "LAW012"
    fault = Fault.LOSS_MASK_IGNORED_OR_OVERWRITTEN
    symptoms = ("loss-does-not-fall", "nothing-is-learned", "odd-metrics")
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    law = "loss-targets"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding that the loss teaches positions that the labels leave out."""
        count, total = evidence["without a label"], evidence["positions with gradient"]
        if count <= tolerance * total or are_targets_mostly_other_tokens(evidence):
            return
        # ORPO's first term is the likelihood of prompt and chosen answer together (TRL averages
        # over both), whatever the labels say.
        by_design = self.subject.kind == "orpo"
        yield self.finding(
            f"{count} of the {total} positions that the loss teaches have no label"
            + (": ORPO's likelihood of the chosen side includes the prompt" if by_design else ""),
            (
                "nothing to do if prompts should be learned too"
                if by_design
                else "use inputs['labels'] in compute_loss, and leave out positions with the label -100"
            ),
            severity="info" if by_design else None,
            evidence=describe_positions(evidence["places"]["without a label"]),
            count=count,
            total=total,
        )
