"""A hand-written loop accumulates gradients and does not divide the loss.

## What it does
Looks for a loop that calls `backward` on each batch and `step` only every few batches (`if step % accumulation == 0`).
It fires if the loss is not divided by that number and no accelerator does it.

## Why it is bad
Gradients of all batches are summed, so each optimizer step is that many times too large, as if the learning rate had
been multiplied by the number of batches.

## Example
```python
from torch.optim import AdamW
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = AdamW(model.parameters(), lr=1e-5)
accumulation = 8
for step, batch in enumerate(loader, 1):
    loss = model(**batch).loss
    loss.backward()
    if step % accumulation == 0:
        optimizer.step()
        optimizer.zero_grad()
```

## Use instead
```python
from torch.optim import AdamW
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = AdamW(model.parameters(), lr=1e-5)
accumulation = 8
for step, batch in enumerate(loader, 1):
    loss = model(**batch).loss / accumulation
    loss.backward()
    if step % accumulation == 0:
        optimizer.step()
        optimizer.zero_grad()
```

## Fix safety
The optimizer steps become smaller: tune the learning rate again if it was tuned with the bug. If rows differ much in
length, divide the summed loss by the tokens of all micro-batches instead: a mean of means gives short rows too much
weight.

## References
- huggingface/transformers#34191, huggingface/transformers#35438, axolotl-ai-cloud/axolotl#1100
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
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.parsed_source_file import Module


class AccumulatedLossNotDivided(SourceRule):
    code = "SRC055"
    fault = Fault.GRADIENT_ACCUMULATION_WRONG
    symptoms = ("loss-does-not-fall", "odd-metrics")
    severity = "warning"
    since = "0.1.0"
    looks_at = OPTIMIZER_STEPS

    def findings(self) -> Iterator[Finding]:
        """Findings on loops that accumulate gradients and do not divide the loss by the number of batches."""
        module = self.subject
        # `with accelerator.accumulate(model)` divides the loss in its backward.
        if module.mentions("accumulate(") or _accelerator_knows_accumulation_steps(module):
            return
        for call, _ in optimizer_steps_with_optimizers(module):
            loop = _innermost_loop_around(module, call.node)
            count = (
                _batches_per_step_as_written(module, call.node, loop) if loop is not None else None
            )
            if loop is None or count in (None, "1"):
                continue
            backward = _first_backward_outside_step_condition(module, loop, call.node)
            if backward is not None and not _does_loop_divide_anything(loop):
                yield self.finding(
                    f"gradients are summed over {count} batches, and the loss is not divided by {count}: each"
                    f" optimizer step is {count} times too large",
                    f"divide the loss before backward(): loss = loss / {count}",
                    cases=[case_of_node(module, backward), case_of_node(module, call.node)],
                )


def _innermost_loop_around(module: Module, node: ast.AST) -> ast.For | ast.While | None:
    """The innermost loop around a node; None where there is none."""
    for parent in module.parents(node):
        if isinstance(parent, (ast.For, ast.While)):
            return parent
    return None


def _first_backward_outside_step_condition(
    module: Module, loop: ast.AST, step: ast.AST
) -> ast.AST | None:
    """The first backward pass of a loop that does not stand under the condition of the step."""
    for node in ast.walk(loop):
        if is_backward_call(node) and not _are_node_and_step_under_same_condition(
            module, node, step
        ):
            return node
    return None


def _batches_per_step_as_written(module: Module, node: ast.AST, loop: ast.AST) -> str | None:
    """The number of batches between two steps: what stands behind `%` in the condition around it."""
    for parent in module.parents(node):
        if parent is loop:
            return None
        if isinstance(parent, ast.If):
            for part in ast.walk(parent.test):
                if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod):
                    return ast.unparse(part.right)
    return None


def _accelerator_knows_accumulation_steps(module: Module) -> bool:
    """Is an accelerator told the number? Then its `backward` divides."""
    made = module.calls("accelerate.Accelerator")
    return any(
        not call.lacks("gradient_accumulation_steps")
        or "gradient_accumulation_plugin" in call.keywords
        for call in made
    )


def _are_node_and_step_under_same_condition(module: Module, node: ast.AST, step: ast.AST) -> bool:
    """Do both stand under the same condition? Then nothing is accumulated."""
    guard = next((parent for parent in module.parents(step) if isinstance(parent, ast.If)), None)
    return guard is not None and guard in set(module.parents(node))


def _does_loop_divide_anything(loop: ast.AST) -> bool:
    """Is anything in the loop divided?

    By whatever it is: a count of tokens is as good as the number of batches, and which value is the loss is often not
    seen. A loop that divides only a metric is missed for it.
    """
    for node in ast.walk(loop):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            if ast.unparse(node.right) != "1":
                return True
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
            return True
    return False
