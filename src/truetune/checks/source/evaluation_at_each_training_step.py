"""A training script evaluates, or saves, at every step.

## What it does
Looks in loops with a backward pass, and in the hooks of callbacks that run in each step (`on_step_end`), for what takes
far longer than a step: a function that runs the model over a loader without a backward pass, `evaluate` of a trainer, a
`save_pretrained`, `torch.save` or `save_model`, and `control.should_evaluate = True` or `control.should_save = True`.
It follows functions to their callers, also in other files. Not reported: calls under a condition, after an epoch, or in
a loop that a `break` leaves, and functions that return early.

## Why it is bad
A pass over the held-out rows takes as long as dozens of steps, and a checkpoint with optimizer states many seconds. The
GPU trains for only a small part of the time, and the curves show no more than with every hundredth value.

## Example
```python
import torch

def validate(model, loader):
    with torch.no_grad():
        return sum(model(**batch).loss.item() for batch in loader)

for batch in train_loader:
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(validate(model, val_loader))
```

## Use instead
```python
import torch

def validate(model, loader):
    with torch.no_grad():
        return sum(model(**batch).loss.item() for batch in loader)

for step, batch in enumerate(train_loader):
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 500 == 0:
        print(validate(model, val_loader))
```

## Fix safety
The trained weights are the same. With fewer evaluations the best checkpoint is chosen among fewer.

## References
- transformers documentation, "Callbacks" (TrainerControl); truetune, docs/guides/slow-training.md
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
from truetune.checks.source.evidence.code_run_in_every_training_step import (
    Loop,
    loop_or_hook_of_each_step,
)
from truetune.source.parsed_source_file import Module

NO_GRADIENT = ("no_grad", "inference_mode")
SAVES = ("save_pretrained", "save_model", "save_checkpoint", "save_state")
CONTROL_SWITCHES = {
    "should_evaluate": "the whole evaluation runs",
    "should_save": "a whole checkpoint is written",
}
EVALUATES = "the model runs over the held-out rows"
WRITES = "the weights are written"
HEADS = (ast.For, ast.comprehension)
"""What holds the rows that a loop goes over"""
HELD_OUT = re.compile(
    r"eval|valid|(?:^|[^a-z])(?:test|val|dev)(?![a-z])|held|perplexity|ppl|accuracy", re.I
)
"""Names of evaluations, and of the rows that they are made on"""
Comprehension = ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp


class _SlowPlace(NamedTuple):
    """A place that takes far longer than a training step."""

    node: ast.AST
    why: str


def _places_that_evaluate_or_save(module: Module) -> Iterator[_SlowPlace]:
    """The places of a file that evaluate or save."""
    yield from _saves_and_trainer_evaluations(module)
    for function in module.nodes(ast.FunctionDef):
        if _does_function_evaluate_batches(function):
            calls = module.flow.calls_of_function_or_class(function)
            yield from (
                _SlowPlace(one, EVALUATES)
                for one in calls
                if _do_names_say_evaluation(function, one)
            )
    for assignment in module.nodes(ast.Assign):
        target = assignment.targets[0]
        if isinstance(target, ast.Attribute) and target.attr in CONTROL_SWITCHES:
            is_on = isinstance(assignment.value, ast.Constant) and assignment.value.value is True
            if is_on:
                yield _SlowPlace(assignment, CONTROL_SWITCHES[target.attr])


def _saves_and_trainer_evaluations(module: Module) -> Iterator[_SlowPlace]:
    """The calls that write weights, and `evaluate` of a trainer."""
    for call in module.all_calls:
        is_of_weights = call.named("torch.save") and "state_dict" in ast.unparse(call.node)
        if is_of_weights or call.method in SAVES:
            yield _SlowPlace(call.node, WRITES)
        elif call.method == "evaluate" and "trainer" in ast.unparse(call.node.func).lower():
            yield _SlowPlace(call.node, EVALUATES)


class EvaluationAtEachTrainingStep(SourceRule):
    code = "SRC399"
    fault = Fault.EVALUATION_TAKES_TRAINING_TIME
    symptoms = ("slow-training",)
    severity = "warning"
    stability = "preview"
    looks_at = CodePlaces(
        "what evaluates or saves",
        lambda module: (one.node for one in _places_that_evaluate_or_save(module)),
    )

    def findings(self) -> Iterator[Finding]:
        """Findings on trainings that evaluate or save at each of their steps."""
        module = self.subject
        seen: set[str] = set()
        for slow in _places_that_evaluate_or_save(module):
            place = loop_or_hook_of_each_step(module, slow.node)
            if place is None or slow.why in seen or _may_loop_have_few_passes(place):
                continue
            seen.add(slow.why)
            yield self.finding(
                f"{slow.why} at each training step, which takes many times as long as the step itself",
                "do it every few hundred steps (`if step % 500 == 0:`; with a Trainer eval_steps=500 and"
                " save_steps=500), or"
                " once per epoch",
                cases=[case_of_node(module, slow.node), case_of_node(module, place)],
            )


def _does_function_evaluate_batches(function: ast.FunctionDef) -> bool:
    """Does a function go over batches without gradients, and make no backward pass?"""
    nodes = list(ast.walk(function))
    if any(is_backward_call(one) for one in nodes) or not _runs_without_gradient(function):
        return False
    return any(
        isinstance(one, ast.Call) and _is_forward_pass(one)
        for loop in nodes
        if isinstance(loop, Loop | Comprehension)
        for one in ast.walk(loop)
    )


def _do_names_say_evaluation(function: ast.FunctionDef, call: ast.Call) -> bool:
    """Do names say that it evaluates? Rollouts of RL and passes of a teacher go over batches without gradients too."""
    heads = [ast.unparse(one.iter) for one in ast.walk(function) if isinstance(one, HEADS)]
    return any(HELD_OUT.search(text) for text in (ast.unparse(call), *heads))


def _runs_without_gradient(function: ast.FunctionDef) -> bool:
    """Does a function, or a block of it, run without gradients: `@torch.no_grad()`, `with
    torch.inference_mode():`?
    """
    managers = [
        item.context_expr
        for node in ast.walk(function)
        if isinstance(node, ast.With | ast.AsyncWith)
        for item in node.items
    ]
    texts = [ast.unparse(one) for one in (*function.decorator_list, *managers)]
    return any(name in text for text in texts for name in NO_GRADIENT)


def _is_forward_pass(call: ast.Call) -> bool:
    """Is it a forward pass: `model(**batch)`, `self.net(ids, labels=labels)`?"""
    spreads = any(keyword.arg is None or keyword.arg == "labels" for keyword in call.keywords)
    name = ast.unparse(call.func).lower()
    return spreads and name.rpartition(".")[2].rstrip("0123456789_") in (
        "model",
        "net",
        "lm",
        "llm",
    )


def _may_loop_have_few_passes(place: ast.AST) -> bool:
    """Is a loop left by a `break`, or is each of its passes an epoch, with all rows in one batch?"""
    if not isinstance(place, Loop):
        return False
    head = ast.unparse(place.target) + ast.unparse(place.iter) if isinstance(place, ast.For) else ""
    return "epoch" in head.lower() or any(isinstance(one, ast.Break) for one in ast.walk(place))
