"""The loss teaches other targets than the next token.

## What it does
Runs real batches through the trainer's own loss and reads, from its gradient at the last hidden state, which token it
teaches at each position. It fires if that is not the next token of the row. Labels, their convention and the kind of
kernel do not matter.

## Why it is bad
The loss falls as usual: a model can learn to predict the token after the next, or to repeat the one it reads. What it
writes is nonsense.

## Example

```python
def compute(outputs, labels, num_items_in_batch=None):
    logits, labels = outputs.logits.flatten(0, 1), labels.flatten()
    total = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
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
There is no automatic fix: correct the shift in your loss. The loss then starts lower, since the model knows the next
token.

## References

- huggingface/transformers#47394, huggingface/transformers#37830, allenai/open-instruct#1549
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.batch.evidence.answer_spans import lines_with_unshifted_labels
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.law.evidence.describe_tokens_taught_by_loss import describe_positions
from truetune.checks.rule import LawRule

# Chosen, not measured: shifted labels are so at every place but the last of a line, unshifted ones
# only where a token repeats. At 0.5, text that repeats itself (tables, code) would hide this rule;
# at 1, one odd label would bring both.
SHIFTED_SHARE = 0.9
"""Share of the labels that are those of the next token, from which the labels themselves are shifted"""


class LossTargetIsNotNextToken(LawRule):
    code = "LAW011"
    fault = Fault.LABELS_MISALIGNED_WITH_TOKENS
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    law = "loss-targets"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding that the loss learns other targets than the tokens that follow in the row."""
        others, total = evidence["other targets"], evidence["looked at"]
        count = sum(others.values())
        if count <= tolerance * total:
            return
        # Labels that are wrong themselves are double-label-shift's; here it is the loss that shifts
        # right ones.
        if self._are_labels_shifted(others) or not any(lines_with_unshifted_labels(self.subject)):
            return
        name = max(others, key=lambda target: int(others[target]))
        yield self.finding(
            f"at {count} of {total} positions the loss teaches another token than the next one,"
            f" most often {name}",
            "shift exactly once in compute_loss (logits[:, :-1] against labels[:, 1:]); models of transformers shift"
            " labels themselves if you pass them",
            evidence=[
                *(f"{target}: {n} positions" for target, n in others.items()),
                *describe_positions(evidence["places"]["other targets"]),
            ],
            count=count,
            total=total,
        )

    def _are_labels_shifted(self, others: dict[str, int]) -> bool:
        """Are the labels themselves shifted? Then `double-label-shift` reports it."""
        shifted = supervised = 0
        for sample in self.subject.samples:
            if sample.labels is not None and len(sample.ids) > 1:
                kept = sample.supervised[:-1]
                shifted += int((sample.labels[:-1] == sample.ids[1:])[kept].sum())
                supervised += int(kept.sum())
        only_next_but_one = set(others) == {"the token after the next"}
        return only_next_but_one and shifted > SHIFTED_SHARE * supervised > 0
