"""Steps of the run's own optimizer leave most weights unchanged.

## What it does
Makes three steps with the run's own optimizer, learning rate and loss, counts the weights that stay the same bit by bit
although they had a gradient, and restores everything. It is measured on a miniature, or when all laws are requested.

## Why it is bad
What does not change in one step does not change in ten thousand: the rounding of a small dtype removes each update, or
the learning rate is almost zero.

## Example

```python
run = transformers.Trainer(model.to(torch.bfloat16), arguments(learning_rate=1e-3, optim="sgd"),
                           transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows), processing_class=tokenizer)
```

## Use instead

```python
run = transformers.Trainer(model, arguments(learning_rate=1e-3),
                           transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows), processing_class=tokenizer)
```

## Fix safety
There is no automatic fix. Weights in float32 take twice the memory.

## References

- vllm-project/speculators#668, huggingface/alignment-handbook#46
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.law.evidence.is_deeper_law_broken import any_law_broken
from truetune.checks.rule import LawRule


class StepsChangeNothing(LawRule):
    code = "LAW021"
    fault = Fault.UPDATES_ROUNDED_AWAY
    symptoms = ("loss-does-not-fall", "nothing-is-learned", "dpo-without-effect")
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    law = "optimizer-step"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        # update-rounding computes beforehand what this law tries: one of the two is enough, and
        # that one names dtypes.
        """The finding that steps of the run's own optimizer leave most weights as they were."""
        if any_law_broken(self.subject, "update-rounding"):
            return
        yield self.finding(
            f"{value:.0%} of the weights with a gradient are the same, bit by bit, after"
            f" {evidence['steps']} steps of the run's own optimizer at a learning rate of {evidence['rate']:.0e}",
            "load the weights in float32 (dtype=torch.float32) and set bf16=True (autocast), or raise learning_rate",
            evidence=[f"{name}: {share:.0%}" for name, share in evidence["by tensor"].items()],
            count=evidence["same"],
            total=evidence["weights"],
        )
