"""The optimizer steps, and no weight has a gradient.

## What it does

Looks at the weights of the optimizer before each of the first steps of a loop of the user's own (`truetune run`): one
of them at least must have a gradient other than zero. Steps with a closure compute theirs later, and are left out.

## Why it is bad

The step changes nothing (weight decay and the momentum of AdamW aside), and nothing is raised. `zero_grad()` is
between `backward()` and `step()`, the loss was cut from the model (`detach`, `item`, a loss that was forced to require
a gradient), or the optimizer holds weights that are not the ones that are used. The loss stays flat.

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

There is no automatic fix.

## References

- https://docs.pytorch.org/docs/stable/optim.html (zero_grad, backward, step, in this order)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import BatchRule

NOT_SEEN = Unmet(
    "it is about the steps of a loop of the user's own, which truetune run sees", asked=False
)


class StepsWithoutGradient(BatchRule):
    code = "BAT045"
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
            f" {self.examined_step_count} steps",
            "call zero_grad() after step(), not between backward() and step(); make the optimizer"
            " of the weights that are used, and do not detach the loss",
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
