"""An evaluation uses a copy of the model that was made before training and is never updated.

## What it does
Finds `copy.deepcopy(model)` before the model's training loop, if the copy is called without gradients in loops that
make no backward pass, and the model itself is evaluated nowhere. Not reported: a copy that gets weights later
(`load_state_dict`, a moving average over `parameters()`), is passed to a function, or takes part in the training as a
reference.

## Why it is bad
The copy keeps the initial weights. Each evaluation gives the same value, that of the untrained model, however well the
training goes.

## Example
```python
import copy

import torch
from transformers import AutoModelForSequenceClassification

model = AutoModelForSequenceClassification.from_pretrained("model")
eval_model = copy.deepcopy(model).eval()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
for epoch in range(3):
    for batch in train_loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        losses = [eval_model(**batch).loss.item() for batch in val_loader]
```

## Use instead
```python
import torch
from transformers import AutoModelForSequenceClassification

model = AutoModelForSequenceClassification.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
for epoch in range(3):
    model.train()
    for batch in train_loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        losses = [model(**batch).loss.item() for batch in val_loader]
```

## Fix safety
There is no automatic fix: the copy may be meant as a baseline. Evaluation values so far are those of the untrained
model.

## References
- https://docs.python.org/3/library/copy.html#copy.deepcopy
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.backward_and_optimizer_step_calls import is_backward_call
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.parsed_source_file import Module
from truetune.source.shorten_qualified_names import spelling_of_variable

LOOPS = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp)
SWITCHES = frozenset(("eval", "to", "cuda", "half", "bfloat16", "requires_grad_", "train"))
"""Methods of a copy that give it no weights of another model"""
ANSWERS = frozenset(("generate", "forward"))


KEPT_ON_PURPOSE = re.compile(
    r"base|ref|teacher|frozen|init|orig|old|before|prior|pretrained|start|anchor|snapshot|untuned|untrained",
    re.I,
)
"""Names of copies that are meant to stay as they were"""


class CopiedModel(NamedTuple):
    """`eval_model = copy.deepcopy(model).eval()`"""

    statement: ast.Assign
    name: str
    model: str


def _model_copies(module: Module) -> Iterator[CopiedModel]:
    """The copies of models that a file makes."""
    for call in module.calls("copy.deepcopy"):
        copied = call.args[0] if call.args else None
        statement = next(
            (one for one in module.parents(call.node) if isinstance(one, ast.stmt)), None
        )
        model = spelling_of_variable(copied)
        if model is None or not isinstance(statement, ast.Assign):
            continue
        name = spelling_of_variable(statement.targets[0])
        if name is not None and KEPT_ON_PURPOSE.search(name.rpartition(".")[2]):
            continue
        is_model = "model" in module.flow.types(copied)
        if is_model and len(statement.targets) == 1 and name is not None:
            yield CopiedModel(statement, name, model)


def _copy_nodes(module: Module) -> Iterator[ast.AST]:
    """The places at which a file copies a model."""
    return (one.statement for one in _model_copies(module))


class EvaluatedCopyIsNotTrained(SourceRule):
    code = "SRC411"
    fault = Fault.WRONG_MODEL_EVALUATED
    severity = "error"
    looks_at = CodePlaces("copies of models", _copy_nodes)

    def findings(self) -> Iterator[Finding]:
        """Findings on evaluations of a copy that was made before the training and that nothing updates."""
        module = self.subject
        for one in _model_copies(module):
            used = _first_pass_of_evaluated_copy(module, one)
            training = _training_loop_after_copy(module, one)
            if used is None or training is None or not _runs_after_backward(module, used, training):
                continue
            if _may_evaluate_model_itself(module, one.model):
                continue
            yield self.finding(
                f"`{one.name}` is a copy of `{one.model}` from before the training, and nothing updates it: each"
                " evaluation measures the untrained model",
                f"evaluate `{one.model}` itself, in eval() mode; or call"
                f" {one.name}.load_state_dict({one.model}.state_dict()) before each evaluation",
                cases=[case_of_node(module, used), case_of_node(module, one.statement)],
            )


def _reads_of_name(module: Module, name: str) -> Iterator[ast.Name | ast.Attribute]:
    """The places that read a variable."""
    return (node for node in module.variable_reads() if spelling_of_variable(node) == name)


def _first_pass_of_evaluated_copy(module: Module, one: CopiedModel) -> ast.AST | None:
    """The first pass of a copy that does nothing but evaluate; None where anything else is done with it."""
    first: ast.AST | None = None
    for name in _reads_of_name(module, one.name):
        parent = module.scopes.parent.get(name)
        if isinstance(parent, ast.Attribute) and parent.attr in SWITCHES:
            continue
        if not _is_model_pass(parent, name) or _is_pass_in_no_loop_or_one_with_backward(
            module, name
        ):
            return None
        first = first or parent
    return first


def _is_model_pass(parent: ast.AST | None, name: ast.AST) -> bool:
    """Is it `copy(**batch)` or `copy.generate(...)`?"""
    if isinstance(parent, ast.Call):
        return parent.func is name
    return isinstance(parent, ast.Attribute) and parent.attr in ANSWERS


def _has_backward(block: ast.AST) -> bool:
    """Does a block make a backward pass?"""
    return any(map(is_backward_call, ast.walk(block)))


def _is_pass_in_no_loop_or_one_with_backward(module: Module, name: ast.AST) -> bool:
    """Is a pass in no loop, or does the innermost loop around it make a backward pass as well, as with the reference of
    a loss?
    """
    loop = _innermost_loop_around(module, name)
    return loop is None or _has_backward(loop)


def _is_training_pass(module: Module, name: ast.AST) -> bool:
    """Is a pass in the very loop that makes the backward pass? One beside it is an evaluation, if of a few rows."""
    loop = _innermost_loop_around(module, name)
    return loop is not None and any(
        is_backward_call(part) and _innermost_loop_around(module, part) is loop
        for part in ast.walk(loop)
    )


def _innermost_loop_around(module: Module, node: ast.AST) -> ast.AST | None:
    """The innermost loop around a node."""
    return next((one for one in module.parents(node) if isinstance(one, LOOPS)), None)


def _training_loop_after_copy(module: Module, one: CopiedModel) -> ast.For | None:
    """The first loop behind the copy that trains the model which was copied, the innermost of several."""
    training_loop: ast.For | None = None
    for loop in module.nodes(ast.For):
        if loop.lineno > one.statement.lineno and _has_backward(loop):
            names = {spelling_of_variable(part) for part in ast.walk(loop)}
            if one.model in names and (training_loop is None or _is_within(loop, training_loop)):
                training_loop = loop
    return training_loop


def _is_within(node: ast.AST, block: ast.AST) -> bool:
    """Is a node a part of a block?"""
    return any(part is node for part in ast.walk(block))


def _runs_after_backward(module: Module, used: ast.AST, training: ast.For) -> bool:
    """Does a pass come behind the backward pass? One in front may compute what the loss is made of, as for DPO."""
    around = module.function_around(used)
    is_here = around is None or _is_within(training, around)
    places = (
        [used]
        if around is None or is_here
        else list(module.flow.calls_of_function_or_class(around))
    )
    passes = [part for part in ast.walk(training) if is_backward_call(part)]
    last = max(getattr(part, "lineno", 0) for part in passes)
    return bool(places) and all(getattr(place, "lineno", 0) > last for place in places)


def _may_evaluate_model_itself(module: Module, name: str) -> bool:
    """Is the model itself evaluated, or handed to a function that may do so?"""
    for node in _reads_of_name(module, name):
        parent = module.scopes.parent.get(node)
        if isinstance(parent, ast.Call) and parent.func is not node:
            if module.flow.name(parent.func) != "copy.deepcopy":
                return True
        elif _is_model_pass(parent, node) and not _is_training_pass(module, node):
            return True
    return False
