"""A Lightning module's training_step returns no loss: each batch is skipped.

## What it does
Inspects `training_step` of a LightningModule of your own. It fires if no `return` of it gives a value, and the module
neither steps an optimizer itself (`automatic_optimization = False`, `manual_backward`) nor passes the step to a base
class of the project. It does not report a step that returns a loss on some paths and nothing on others.

## Why it is bad
Lightning uses the loss that the method returns. With None it computes no gradient and makes no step: the run ends
without an error, the logged loss stays around one value, and no weight has changed.

## Example
```python
import lightning as L


class Tuned(L.LightningModule):
    def training_step(self, batch, batch_idx):
        loss = self.model(**batch).loss
        self.log("train_loss", loss)
```

## Use instead
```python
import lightning as L


class Tuned(L.LightningModule):
    def training_step(self, batch, batch_idx):
        loss = self.model(**batch).loss
        self.log("train_loss", loss)
        return loss
```

## Fix safety
Safe: returning the loss is what the method is for. The model is then trained for the first time.

## References
- https://lightning.ai/docs/pytorch/stable/common/lightning_module.html#training-step ("None - Skip to the next batch")
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.parsed_source_file import Module

LIGHTNING = "LightningModule"
STEPS_BY_ITSELF = re.compile(r"automatic_optimization\b|manual_backward|\.backward\(")
"""What a module holds that computes its gradients itself"""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def _training_steps(module: Module) -> Iterator[ast.FunctionDef]:
    """The training steps of Lightning modules."""
    for owner in module.nodes(ast.ClassDef):
        if any(name.endswith(LIGHTNING) for name in module.flow.bases(owner)):
            for part in owner.body:
                if isinstance(part, ast.FunctionDef) and part.name == "training_step":
                    yield part


class TrainingStepReturnsNothing(SourceRule):
    code = "SRC284"
    fault = Fault.GRADIENTS_NEVER_REACH_OPTIMIZER
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "error"
    looks_at = CodePlaces("training steps of Lightning modules", _training_steps)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if any(STEPS_BY_ITSELF.search(part.text) for part in module.self_and_files_run_together):
            return
        for step in _training_steps(module):
            if _may_return_value_or_raise(step):
                continue
            loss = _loss_name(step)
            yield self.finding(
                "training_step returns nothing: Lightning skips each batch, and no weight ever changes",
                f"end training_step with `return {loss}`",
                cases=[case_of_node(module, step)],
            )


def _nodes_without_inner_functions(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function, without those of functions within it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, FUNCTIONS):
            waiting += ast.iter_child_nodes(node)


def _may_return_value_or_raise(step: ast.FunctionDef) -> bool:
    """Does any way of the method return or yield a value, raise, or is its body not written (`...`)?"""
    for node in _nodes_without_inner_functions(step):
        if isinstance(node, ast.Return):
            value = node.value
            if value is not None and not (isinstance(value, ast.Constant) and value.value is None):
                return True
        if isinstance(node, (ast.Yield, ast.YieldFrom, ast.Raise)):
            return True
    return not any(isinstance(node, ast.Assign) for node in _nodes_without_inner_functions(step))


def _loss_name(step: ast.FunctionDef) -> str:
    """The name that the method keeps its loss in; `loss` where it can't be told."""
    names = [
        target.id
        for node in ast.walk(step)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and "loss" in target.id.lower()
    ]
    return names[-1] if names else "loss"
