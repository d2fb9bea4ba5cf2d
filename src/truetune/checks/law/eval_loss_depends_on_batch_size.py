"""The evaluation loss changes with the evaluation batch size.

## What it does
Computes the loss of some evaluation rows with the trainer's own evaluation step, one by one and in batches of the run's
size, averaged as the trainer does. It fires if the two differ by more than 5 %: a warning if the run loads its best
checkpoint at the end, else info.

## Why it is bad
The trainer takes the mean of batch means, so rows with few labels count too much. With another batch size, the same
weights get another loss, and another checkpoint is the best.

## Example

```python
torch.nn.init.normal_(model.lm_head.weight, std=5.0)
uneven = encoded(chats(8))
for row in uneven[::2]:
    first = next(i for i, label in enumerate(row["labels"]) if label != -100)
    row["labels"] = [-100 if i != first else label for i, label in enumerate(row["labels"])]
settings = arguments(eval_strategy="steps", eval_steps=2, per_device_eval_batch_size=8)
run = transformers.Trainer(model, settings, transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows), uneven,
                           processing_class=tokenizer)
```

## Use instead

```python
settings = arguments(eval_strategy="steps", eval_steps=2, per_device_eval_batch_size=1)
run = transformers.Trainer(model, settings, transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           encoded(rows), processing_class=tokenizer)
```

## Fix safety
There is no automatic fix. With `per_device_eval_batch_size: 1` the loss is the mean over rows on any machine;
evaluation is then slower.

## References

- huggingface/transformers#39241, huggingface/transformers#24839, huggingface/transformers#41898
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import LawRule


class EvalLossDependsOnBatchSize(LawRule):
    code = "LAW008"
    fault = Fault.METRIC_AVERAGED_WRONGLY
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    law = "evaluation-loss"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding that the evaluation loss moves with the evaluation batch size."""
        size = evidence["size"]
        one, many = evidence["batches of 1"], evidence[f"batches of {size}"]
        tokens = (
            [
                f"mean over all tokens: {evidence['over tokens']:.4g}",
                f"labels per row: {evidence['labels']}",
            ]
            if "over tokens" in evidence
            else []
        )
        yield self.finding(
            f"the evaluation loss on the same {evidence['rows']} rows is {one:.4g} with a batch size of 1"
            f" but {many:.4g} with {size}",
            "compare evaluation losses only at the same batch size, or set per_device_eval_batch_size"
            " to 1",
            # Trainers average the losses of batches, not of tokens, so that most runs have this
            # difference. It does harm only where the loss decides which checkpoint is kept.
            severity=(
                "warning" if self.subject.facts["args"].get("load_best_model_at_end") else "info"
            ),
            evidence=tokens,
        )
