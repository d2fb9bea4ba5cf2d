"""Gradients of micro-batches are cleared before the step that should use them.

## What it does
Watches one weight in the first steps of a hand-written loop (`truetune run`). It fires if each step follows several
forward and backward passes, but the gradient is cleared between them, so the step only gets that of the last one.

## Why it is bad
All passes except the last are computed for nothing: the batch of a step is one micro-batch. If losses are divided by
the number of passes, its gradient is too small as well. The loss still falls, more slowly and with more noise.

## Example

```python
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
def step(batch):
    for _ in range(4):
        optimizer.zero_grad()
        (model(**batch).loss / 4).backward()
    optimizer.step()
```

## Use instead

```python
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
def step(batch):
    optimizer.zero_grad()
    for _ in range(4):
        (model(**batch).loss / 4).backward()
    optimizer.step()
```

## Fix safety
There is no automatic fix: call `zero_grad()` once before the micro-batches of a step. Steps then use all rows, and
gradients are larger.

## References

- https://docs.pytorch.org/docs/stable/optim.html (zero_grad, backward, step, in this order)
- bytetriper/RAE#67
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import BatchRule

NOT_SEEN = Unmet(
    "it is about steps after several backward passes in a loop of the user's own, which truetune run sees",
    asked=False,
)
MIN_LOST_PASSES = 2
"""Cleared passes from which it is no batch that was given up for its loss. Chosen: one may be"""


class GradientsOfMicroBatchesCleared(BatchRule):
    code = "BAT047"
    fault = Fault.GRADIENT_ACCUMULATION_WRONG
    symptoms = ("loss-does-not-fall",)
    severity = "error"

    def sum_count_over_processes(self, name: str) -> int:
        """A count of the observed steps, of all processes."""
        return sum(record.facts.get("steps", {}).get(name, 0) for record in self.subject.records)

    def findings(self) -> Iterator[Finding]:
        seen, lost = (
            self.sum_count_over_processes("accumulated"),
            self.sum_count_over_processes("lost_passes"),
        )
        if self.sum_count_over_processes("only_last") < seen or lost < MIN_LOST_PASSES:
            return
        yield self.finding(
            f"the gradients of {lost} of {lost + seen} backward passes are cleared before they are used: each step"
            " follows several passes, but only gets the gradient of the last",
            "call optimizer.zero_grad() once before the micro-batches of a step, or right after optimizer.step()",
            count=lost,
            total=lost + seen,
        )

    def unmet(self) -> Unmet | None:
        return None if self.sum_count_over_processes("accumulated") else NOT_SEEN

    def measurement_if_clean(self) -> Measurement:
        """How many steps used the gradients of all their backward passes."""
        seen = self.sum_count_over_processes("accumulated")
        used = seen - self.sum_count_over_processes("only_last")
        return make_count_measurement("steps that used all of their backward passes", used, seen)
