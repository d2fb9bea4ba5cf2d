"""A loop adds up the losses of several batches and calls backward() once for all of them.

## What it does
Looks for PyTorch loops that add a model's loss, with its graph, to a sum or put it into a list, where each pass of the
loop has its own batch and `backward()` is only called on the sum or list: after the loop, or in it under a condition
such as `step % 16 == 0`. It does not fire if each batch has its own backward pass, if the losses are numbers or
detached, if one batch goes through several heads, if a pass uses states of the previous one, or in loops of two or
three passes.

## Why it is bad
A loss holds the graph of its batch, and the graph holds the activations of all layers. They stay in memory for all
batches until the single backward pass: 16 micro-batches need as much memory as one batch of 16 times the rows. Gradient
accumulation is meant to avoid exactly that, and the gradients are the same either way.

## Example
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model").cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for micro_batches in steps:
    total = 0.0
    for batch in micro_batches:
        total = total + model(**batch).loss
    (total / 16).backward()
    optimizer.step()
    optimizer.zero_grad()
```

## Use instead
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model").cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for micro_batches in steps:
    total = 0.0
    for batch in micro_batches:
        loss = model(**batch).loss / 16
        loss.backward()
        total += loss.item()
    optimizer.step()
    optimizer.zero_grad()
```

## Fix safety
Safe: `backward()` adds to the gradients, so the separate passes give the same gradients as one pass over the sum.

## References
- PyTorch documentation, FAQ: "My model reports cuda runtime error(2): out of memory"
- pytorch/pytorch#23338
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.losses_kept_with_autograd_graph import (
    KeptLoss,
    backward_call_on_kept_sum_or_list,
    carries_graph_of_model,
    kept_losses,
)
from truetune.source.parsed_source_file import Module

FEW_PASSES = 4
"""Passes of a loop below which the sum costs little. Chosen, not measured"""
CARRIED_STATES = frozenset(
    ("past_key_values", "hidden_states", "state", "states", "memory", "mems")
)
"""Arguments of a model that hand a state from one pass to the next: the graph through it is meant"""


class OneBackwardForManyBatches(SourceRule):
    code = "SRC330"
    fault = Fault.MEMORY_GROWS_IN_LOOP
    symptoms = ("out-of-memory", "slow-training")
    severity = "warning"
    stability = "preview"
    looks_at = CodePlaces("losses that a loop collects or adds up", kept_losses)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for kept in kept_losses(module):
            backward = _backward_for_several_batches(module, kept)
            if backward is None:
                continue
            yield self.finding(
                f"`{ast.unparse(kept.holder)}` keeps the graphs of all batches of the loop until the single backward():"
                " memory grows with each batch, as if they were one large batch",
                "call (loss / number_of_batches).backward() for each batch, and only add up loss.item()",
                cases=[case_of_node(module, kept.node), case_of_node(module, backward)],
            )


def _backward_for_several_batches(module: Module, kept: KeptLoss) -> ast.Call | None:
    """The backward pass that follows for several batches; None where each has its own, or the losses have no graph."""
    loop = kept.loop
    if not isinstance(loop, ast.For | ast.While) or _has_two_or_three_passes(module, loop):
        return None
    if not carries_graph_of_model(module, kept.value) or not _model_gets_new_batch_each_pass(
        module, loop
    ):
        return None
    backward = backward_call_on_kept_sum_or_list(module, kept.holder)
    is_late = backward is not None and _comes_after_several_batches(
        module, backward, kept.node, loop
    )
    return backward if is_late else None


def _comes_after_several_batches(
    module: Module, backward: ast.Call, kept: ast.AST, loop: ast.For | ast.While
) -> bool:
    """Does a backward pass follow after the loop, or in it for each few batches?"""
    inside = [part for part in ast.walk(loop) if _is_backward(part)]
    is_after = not inside and getattr(backward, "lineno", 0) > getattr(loop, "lineno", 0)
    is_periodic = backward in inside and _is_backward_under_step_condition(
        module, backward, kept, loop
    )
    return is_after or is_periodic


def _is_backward(node: ast.AST) -> bool:
    """Is it `loss.backward()` or `accelerator.backward(loss)`?"""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("backward", "manual_backward")
    )


def _is_backward_under_step_condition(
    module: Module, backward: ast.AST, kept: ast.AST, loop: ast.AST
) -> bool:
    """Does a backward pass stand under a condition such as `step % 16 == 0`, and the sum outside of it?"""
    around = set(module.parents(kept))
    for parent in module.parents(backward):
        if parent is loop:
            return False
        if isinstance(parent, ast.If) and parent not in around:
            return any(
                isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod)
                for part in ast.walk(parent.test)
            )
    return False


def _has_two_or_three_passes(module: Module, loop: ast.For | ast.While) -> bool:
    """Does the code say that the loop has two or three passes?"""
    if isinstance(loop, ast.While):
        return False
    if isinstance(loop.iter, ast.List | ast.Tuple):
        return len(loop.iter.elts) < FEW_PASSES
    if not isinstance(loop.iter, ast.Call) or ast.unparse(loop.iter.func) != "range":
        return False
    last = module.flow.value(loop.iter.args[-1]) if loop.iter.args else None
    return isinstance(last, int) and last < FEW_PASSES


def _model_gets_new_batch_each_pass(module: Module, loop: ast.For | ast.While) -> bool:
    """Is a model called in the loop on what each pass brings, and on no state of the pass before?"""
    given = _names_bound_in(loop)
    for node in ast.walk(loop):
        if not isinstance(node, ast.Call) or "model" not in module.flow.types(node.func):
            continue
        if any(keyword.arg in CARRIED_STATES for keyword in node.keywords):
            return False
        values = (*node.args, *(keyword.value for keyword in node.keywords))
        names = {
            part.id for value in values for part in ast.walk(value) if isinstance(part, ast.Name)
        }
        if names & given:
            return True
    return False


def _names_bound_in(loop: ast.For | ast.While) -> set[str]:
    """The names that a loop and its body bind."""
    return {
        part.id
        for part in ast.walk(loop)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }
