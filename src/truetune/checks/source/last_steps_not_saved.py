"""A loop saves every N steps but not at its end: what it learned after the last save is lost.

## What it does
Checks hand-written loops that save the model only under a condition on a multiple (`step % 500 == 0`). It fires if
nothing else saves: not after the loop, not at the best metric, not in a function that the files do not show. An endless
loop, and one whose last step is known to be a multiple, are not reported.

## Why it is bad
A run of 1,400 steps that saves every 500 leaves the model of step 1,000. A run that is shorter than one interval saves
nothing at all. The log shows the loss of the last step, but the folder contains another model.

## Example
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for step, batch in enumerate(loader):
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if (step + 1) % 500 == 0:
        model.save_pretrained("out")
```

## Use instead
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for step, batch in enumerate(loader):
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if (step + 1) % 500 == 0:
        model.save_pretrained("out")
model.save_pretrained("out")
```

## Fix safety
Safe: one more save.

## References
- ByteDance-Seed/VeOmni#798 (steps after the last save that a resume trains again)
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
from truetune.checks.source.evidence.conditions_in_last_loop_pass import is_reached_in_last_pass
from truetune.source.call_with_resolved_names_and_arguments import Call, last_name_of_called
from truetune.source.parsed_source_file import Module

SAVES = re.compile(r"save|checkpoint|push_to_hub|upload|export", re.I)
OF_MODEL = re.compile(
    r"^(save_pretrained|save_model|save|save_checkpoint|save_state|save_adapter)$"
)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
ONE_PROCESS = re.compile(r"rank|main_process|is_master|process_zero|is_main")
"""In a condition: that one process saves for all"""
NOT_A_MODEL = re.compile(
    r"fig|plt|img|image|json|log|metric|token|result|csv|wandb|np\.|processor", re.I
)


class SavedAtMultiples(NamedTuple):
    """A save that only multiples of a number of steps reach."""

    save: Call
    condition: ast.If
    loop: ast.AST


def saves_in_training_loops(module: Module) -> Iterator[Call]:
    """The saves of models in loops that make backward passes."""
    for call in module.all_calls:
        is_save = OF_MODEL.match(last_name_of_called(call.node)) is not None
        if is_save and not NOT_A_MODEL.search(ast.unparse(call.node.func)):
            if _training_loop_around(module, call.node) is not None:
                yield call


def _training_loop_around(module: Module, node: ast.AST) -> ast.AST | None:
    """The innermost loop around a place that makes backward passes."""
    for up in module.parents(node):
        if isinstance(up, LOOPS) and any(map(is_backward_call, ast.walk(up))):
            return up
    return None


def saved_at_multiples_alone(module: Module) -> SavedAtMultiples | None:
    """The save of a file's loop, where each save is under a multiple; None where any other place may save."""
    saved_at_multipleses: list[SavedAtMultiples] = []
    known = {call.node: call for call in saves_in_training_loops(module)}
    for part in module.self_and_files_run_together:
        for node in filter(_may_save_model, part.nodes(ast.Call)):
            call = known.get(node)
            save = None if call is None else _save_under_multiple(part, call)
            if save is None:
                return None
            saved_at_multipleses.append(save)
    return saved_at_multipleses[0] if saved_at_multipleses else None


def _may_save_model(node: ast.Call) -> bool:
    """May a call, by its name, save a model?"""
    is_save = SAVES.search(last_name_of_called(node)) is not None
    return is_save and NOT_A_MODEL.search(ast.unparse(node.func)) is None


def _save_under_multiple(module: Module, call: Call) -> SavedAtMultiples | None:
    """A save with the multiple around it; None where there is none, or the last pass is one."""
    loop = _training_loop_around(module, call.node)
    condition = None if loop is None else _condition_on_multiple_around(module, call.node, loop)
    if loop is None or condition is None:
        return None
    if _never_ends(module, loop) or is_reached_in_last_pass(module, call.node, condition, loop):
        return None
    return SavedAtMultiples(call, condition, loop)


def _condition_on_multiple_around(module: Module, node: ast.AST, loop: ast.AST) -> ast.If | None:
    """The condition on a multiple of a counter around a place; None where the loop asks for anything else there."""
    condition: ast.If | None = None
    for up in module.parents(node):
        if up is loop:
            return condition
        if not isinstance(up, ast.If) or ONE_PROCESS.search(ast.unparse(up.test)):
            continue
        # A save of the best model, or at the last step, is a choice and no accident.
        if condition is not None or not _condition_tests_only_for_multiple(module, up.test):
            return None
        condition = up
    return None


def _condition_tests_only_for_multiple(module: Module, test: ast.expr) -> bool:
    """Does a condition ask for a multiple of a counter, and not for the end as well?"""
    multiples = _remainders(test)
    asks_for_end = any(isinstance(part, ast.Or) for part in ast.walk(test))
    is_each = any(module.flow.value(part.right) == 1 for part in multiples)
    return bool(multiples) and not asks_for_end and not is_each


def _remainders(test: ast.expr) -> list[ast.BinOp]:
    """The remainders in a condition: `(step + 1) % 500`."""
    return [
        part
        for part in ast.walk(test)
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod)
    ]


def _never_ends(module: Module, loop: ast.AST) -> bool:
    """Does a loop, or one around it, run until someone stops the program?"""
    return any(
        isinstance(one, ast.While)
        and isinstance(one.test, ast.Constant)
        and not any(isinstance(part, ast.Break | ast.Return) for part in ast.walk(one))
        for one in (loop, *module.parents(loop))
    )


class LastStepsNotSaved(SourceRule):
    code = "SRC477"
    fault = Fault.TRAINING_RESULT_LOST
    symptoms = ("odd-metrics",)
    severity = "warning"
    looks_at = CodePlaces("saves in training loops", saves_in_training_loops)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        saved_at_multiples = saved_at_multiples_alone(module)
        if saved_at_multiples is not None:
            yield self.finding(
                "the model is only saved every so many steps, and not at the end: what it learned after the last"
                " save is"
                " lost",
                f"repeat {module.text_of(saved_at_multiples.save.node)[:80]} after the loop",
                cases=[
                    case_of_node(module, saved_at_multiples.save.node),
                    case_of_node(module, saved_at_multiples.condition.test),
                ],
            )
