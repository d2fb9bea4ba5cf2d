"""The training loss is logged after it was divided by the accumulation steps.

## What it does
Looks at loops that divide the loss of each batch by the number of accumulated batches (`loss = loss / n`, with a step
at every nth batch) and log or print the divided loss. Not reported if the value is multiplied again, or if the parts of
a step are added up.

## Why it is bad
The curve is n times below the model's loss. Next to a validation loss, which nothing divides, it looks like overfitting
from the first step on, and runs with different accumulation can't be compared.

## Example
```python
import wandb
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
for number, batch in enumerate(loader):
    loss = model(**batch).loss / 16
    loss.backward()
    if (number + 1) % 16 == 0:
        optimizer.step()
        optimizer.zero_grad()
        wandb.log({"train/loss": loss.item()})
```

## Use instead
```python
import wandb
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
for number, batch in enumerate(loader):
    loss = model(**batch).loss / 16
    loss.backward()
    if (number + 1) % 16 == 0:
        optimizer.step()
        optimizer.zero_grad()
        wandb.log({"train/loss": loss.item() * 16})
```

## Fix safety
There is no automatic fix. Only the logged value changes, not the training.

## References
- https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.losses_logged_divided_by_accumulation import (
    DividedLoss,
    divided_losses,
    logs_of_divided_loss,
)
from truetune.source.parsed_source_file import Module


def _divided_losses(module: Module) -> Iterator[ast.AST]:
    """Losses that are divided by the batches of a step."""
    return (one.statement for one in divided_losses(module))


class LoggedLossDivided(SourceRule):
    code = "SRC406"
    fault = Fault.LOGGED_LOSS_SCALED_WRONGLY
    severity = "warning"
    looks_at = CodePlaces("losses that are divided by the batches of a step", _divided_losses)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for divided in divided_losses(module):
            read = next(logs_of_divided_loss(module, divided), None)
            if read is not None:
                yield self._finding_on_loss(divided, read)

    def _finding_on_loss(self, divided: DividedLoss, read: ast.AST) -> Finding:
        """The finding on a loss that is logged as the part of it that one batch adds to a step."""
        module = self.subject
        count = module.flow.value(divided.divisor)
        by = f"{count:,}" if isinstance(count, int) else f"`{module.text_of(divided.divisor)}`"
        return self.finding(
            f"the training loss is logged after it was divided by the accumulation steps: it is {by} times too small"
            " compared with an evaluation loss",
            f"log {divided.name}.item() * {module.text_of(divided.divisor)}, or log the loss before it is divided",
            evidence=["the gradients are right: only the logged value is wrong"],
            cases=[case_of_node(module, read), case_of_node(module, divided.statement)],
        )
