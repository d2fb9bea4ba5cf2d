"""The optimizer makes steps although no weight has a gradient.

## What it does
Checks the weights of the optimizer before each of the first steps of a hand-written loop (`truetune run`): at least one
of them must have a gradient other than zero. It is an error if none has one at any step, else a warning. Steps with a
closure compute theirs later, and do not count.

## Why it is bad
The step changes nothing (apart from weight decay and AdamW's momentum), and nothing is raised. `zero_grad()` is called
between `backward()` and `step()`, the loss is detached from the model (`detach`, `item`, a loss that was forced to
require a gradient), or the optimizer has other weights than those in use. The loss stays flat.

## Example

```python
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
def step(batch):
    model(**batch).loss.backward()
    optimizer.zero_grad()
    optimizer.step()
```

## Use instead

```python
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
def step(batch):
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
```

## Fix safety
There is no automatic fix: once gradients arrive, the weights change at the configured learning rate.

## References

- https://docs.pytorch.org/docs/stable/optim.html (zero_grad, backward, step, in this order)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import BatchRule

NOT_SEEN = Unmet(
    "it is about the steps of a loop of the user's own, which truetune run sees", asked=False
)


class StepsWithoutGradient(BatchRule):
    code = "BAT045"
    fault = Fault.GRADIENTS_NEVER_REACH_OPTIMIZER
    severity = "error"

    @property
    def examined_step_count(self) -> int:
        """The number of steps that were examined, of all processes."""
        return sum(record.facts.get("steps", {}).get("seen", 0) for record in self.subject.records)

    @property
    def step_count_without_gradient(self) -> int:
        """The number of examined steps before which no weight had a gradient."""
        return sum(
            record.facts.get("steps", {}).get("without_gradient", 0)
            for record in self.subject.records
        )

    def findings(self) -> Iterator[Finding]:
        if not self.step_count_without_gradient:
            return
        every = self.step_count_without_gradient == self.examined_step_count
        yield self.finding(
            f"no weight of the optimizer has a gradient before {self.step_count_without_gradient} of its first"
            f" {self.examined_step_count} steps, so they change nothing",
            "call optimizer.zero_grad() after step(), not between backward() and step(); build the optimizer"
            " from the weights that are in use, and do not detach the loss",
            # One step may have had a batch without labels, or a gradient that was scaled to zero.
            severity="error" if every else "warning",
            count=self.step_count_without_gradient,
            total=self.examined_step_count,
        )

    def unmet(self) -> Unmet | None:
        return None if self.examined_step_count else NOT_SEEN

    def measurement_if_clean(self) -> Measurement:
        """How many steps of the optimizer had a gradient."""
        return make_count_measurement(
            "steps of the optimizer with a gradient",
            self.examined_step_count - self.step_count_without_gradient,
            self.examined_step_count,
        )
