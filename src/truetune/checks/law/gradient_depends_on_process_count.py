"""The gradient depends on the number of processes.

## What it does
Runs a few real rows through the trainer's own `training_step`, once as one process, and once as two with half of them
each, with the token counts as they would be gathered, and averages the two gradients as DDP does. Both are computed in
this process. It is info if the run has only one process (one per GPU).

## Why it is bad
Each process then averages over its own tokens: a token counts more if its process has few. Results change with the
number of GPUs, and no log shows why.

## Example

```python
run = transformers.Trainer(model, arguments(average_tokens_across_devices=False),
                           transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows), processing_class=tokenizer)
```

## Use instead

```python
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Fix safety
There is no automatic fix. With `average_tokens_across_devices=True` every token has the same weight; the loss changes
slightly.

## References

- huggingface/transformers#34242, huggingface/transformers#34373, huggingface/trl#6380
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.law.evidence.is_deeper_law_broken import FORWARD_LAWS, any_law_broken
from truetune.checks.rule import LawRule


class GradientDependsOnProcessCount(LawRule):
    code = "LAW016"
    fault = Fault.VALUES_NOT_AVERAGED_OVER_PROCESSES
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    law = "process-count"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding that the gradient depends on the number of processes."""
        several = evidence["world"] > 1
        if any_law_broken(
            self.subject, *FORWARD_LAWS, "loss-alive", "loss-targets", "reference-dropout"
        ):
            return
        # One process plays both, one after the other: where even accumulation is wrong, this can't
        # be right.
        if not several and any_law_broken(self.subject, "gradient-accumulation"):
            return
        first, second = evidence["tokens"]
        counts = f"({first} and {second} supervised tokens) " if first is not None else ""
        yield self.finding(
            f"two processes with half of the rows each {counts}give another gradient than one with"
            f" all rows: it is {evidence['ratio']:.2f} times as large and differs by {value:.2g} of its size",
            "set average_tokens_across_devices=True, and divide the sum of the losses by"
            " num_items_in_batch in compute_loss",
            severity=None if several else "info",
            evidence=[
                f"average_tokens_across_devices: {evidence['average_tokens_across_devices']}",
                f"processes of this run: {evidence['world']}",
                f"rounding explains up to {tolerance:.0e}",
            ],
        )
