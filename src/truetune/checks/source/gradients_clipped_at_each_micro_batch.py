"""Gradients are clipped after each micro-batch, while they are accumulated for one step.

## What it does
Looks at loops that step their optimizer under a condition on the batch number, and clip the gradients outside of it. It
fires if the clipping is in the same pass as the backward pass, and no other condition makes it wait for the last
micro-batch. A loop in which another optimizer steps in each pass is not reported.

## Why it is bad
The sum of the first micro-batches is clipped again and again, and the next one is added to what is left. The last
micro-batch counts most and the first ones hardly at all, and the step is smaller than the limit allows.

## Example
```python
import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for step, batch in enumerate(loader):
    loss = model(**batch).loss / 16
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if (step + 1) % 16 == 0:
        optimizer.step()
        optimizer.zero_grad()
```

## Use instead
```python
import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for step, batch in enumerate(loader):
    loss = model(**batch).loss / 16
    loss.backward()
    if (step + 1) % 16 == 0:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
```

## Fix safety
Safe: the limit then applies to the gradient of the step. Steps may be larger than before.

## References
- https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.backward_and_optimizer_step_calls import (
    is_backward_call,
    optimizer_steps_with_optimizers,
)
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.call_with_resolved_names_and_arguments import last_name_of_called
from truetune.source.parsed_source_file import Module

CLIPS = re.compile(r"^clip_grad(_norm|_value|ient)?s?_?$|^clip_grad_norm_?$")
WAITS = re.compile(r"%|accum|sync|micro|boundary|last|should_step|do_step|update")
"""In a condition: what waits for the last micro-batch of a step"""
LOOPS = (ast.For, ast.AsyncFor, ast.While)


class EarlyClip(NamedTuple):
    """A clipping before all micro-batches of a step are there."""

    clip: ast.Call
    step: ast.Call
    condition: ast.If


def clippings_at_each_micro_batch(module: Module) -> Iterator[EarlyClip]:
    """The clippings that run at each micro-batch."""
    steps = [call.node for call, _ in optimizer_steps_with_optimizers(module)]
    for step in steps:
        condition = _condition_for_last_micro_batch(module, step)
        loop = _loop_around(module, step)
        if condition is None or loop is None or not any(map(is_backward_call, ast.walk(loop))):
            continue
        if _does_other_optimizer_step_each_pass(module, loop, steps):
            continue
        for clip in _clip_calls_of_each_loop_pass(module, loop):
            if clip.lineno < step.lineno:
                yield EarlyClip(clip, step, condition)
                break


def _loop_around(module: Module, node: ast.AST) -> ast.AST | None:
    """The innermost loop around a place."""
    return next((up for up in module.parents(node) if isinstance(up, LOOPS)), None)


def _does_other_optimizer_step_each_pass(
    module: Module, loop: ast.AST, steps: Sequence[ast.Call]
) -> bool:
    """Does another optimizer, of a critic say, step in each pass, so that the clipping is for it?"""
    return any(
        _loop_around(module, step) is loop and _condition_for_last_micro_batch(module, step) is None
        for step in steps
    )


def _clip_calls_of_each_loop_pass(module: Module, loop: ast.AST) -> Iterator[ast.Call]:
    """The clippings that each pass of a loop runs."""
    for part in ast.walk(loop):
        if not isinstance(part, ast.Call) or not CLIPS.match(last_name_of_called(part)):
            continue
        if (
            _loop_around(module, part) is loop
            and _condition_for_last_micro_batch(module, part) is None
        ):
            yield part


def _condition_for_last_micro_batch(module: Module, node: ast.AST) -> ast.If | None:
    """The condition around a place, within its loop, that waits for the last micro-batch."""
    for up in module.parents(node):
        if isinstance(up, LOOPS):
            return None
        if isinstance(up, ast.If) and WAITS.search(ast.unparse(up.test)):
            return up
    return None


def _gradient_clipping_calls(module: Module) -> Iterator[ast.Call]:
    """The calls that clip gradients."""
    for node in module.nodes(ast.Call):
        if CLIPS.match(last_name_of_called(node)):
            yield node


class GradientsClippedAtEachMicroBatch(SourceRule):
    code = "SRC475"
    fault = Fault.GRADIENT_ACCUMULATION_WRONG
    symptoms = ("loss-does-not-fall",)
    severity = "warning"
    looks_at = CodePlaces("calls that clip gradients", _gradient_clipping_calls)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for early in clippings_at_each_micro_batch(module):
            yield self.finding(
                "gradients are clipped at each micro-batch, before all those of the step are added up: the sum is"
                " clipped"
                " again and again",
                "move the clipping under the condition of optimizer.step(), right before it",
                cases=[
                    case_of_node(module, early.clip),
                    case_of_node(module, early.condition.test),
                    case_of_node(module, early.step),
                ],
            )
