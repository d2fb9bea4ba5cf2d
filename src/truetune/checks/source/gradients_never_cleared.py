"""A hand-written loop never clears its gradients.

## What it does
Looks for a loop with `backward()` and `optimizer.step()` in a file that never calls `zero_grad`.

## Why it is bad
Each step adds the gradients of all earlier batches: the direction is outdated, the size grows, and the loss wanders or
diverges.

## Example
```python
from torch.optim import AdamW
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = AdamW(model.parameters(), lr=1e-5)
for batch in loader:
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
```

## Use instead
```python
from torch.optim import AdamW
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = AdamW(model.parameters(), lr=1e-5)
for batch in loader:
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
```

## Fix safety
Safe: the gradients of a step are not needed after it.

## References
- pytorch/pytorch: `torch.optim.Optimizer.zero_grad`
- pytorch/examples: every training loop there
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.backward_and_optimizer_step_calls import (
    OPTIMIZER_STEPS,
    is_backward_call,
    optimizer_steps_with_optimizers,
)
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node, fix_of_changes
from truetune.source.make_source_edits import insert_statements_after

CLEARING_CODE = ("zero_grad", ".grad = None", ".grad=None", ".grad.zero_(")


class GradientsNeverCleared(SourceRule):
    code = "SRC056"
    fault = Fault.TRAINING_CALLS_IN_WRONG_ORDER
    symptoms = ("loss-does-not-fall",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    looks_at = OPTIMIZER_STEPS

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if module.mentions(*CLEARING_CODE):
            return
        for call, optimizer in optimizer_steps_with_optimizers(module):
            loop = next(
                (
                    node
                    for node in module.parents(call.node)
                    if isinstance(node, (ast.For, ast.While))
                ),
                None,
            )
            statement = module.statement(call.node)
            if (
                loop is not None
                and statement is not None
                and any(map(is_backward_call, ast.walk(loop)))
            ):
                name = module.text_of(optimizer)
                yield self.finding(
                    f"{name} steps in a loop, and nothing clears the gradients: each step adds those of all earlier"
                    " batches",
                    f"call {name}.zero_grad() after each step",
                    cases=[case_of_node(module, call.node)],
                    fix=fix_of_changes(
                        module, insert_statements_after(module, statement, f"{name}.zero_grad()")
                    ),
                )
