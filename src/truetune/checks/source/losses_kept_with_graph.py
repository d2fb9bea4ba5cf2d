"""Losses are collected over the steps as tensors, each with its autograd graph.

## What it does
Looks in loops for a loss that is appended to a list, or added to a sum, as the tensor on which `backward()` is called
or that the model returned; also through an object of the files (`meter.update(loss)`), and in the method that a Trainer
or Lightning calls for each step (`compute_loss`, `training_step`), if nothing in the class empties it. It is an error
if the whole graph is kept (no `backward()`, or `retain_graph=True`), else a warning. Not reported: a detached loss
(`.item()`, `.detach()`, `float()`), code under `no_grad`, a list or sum that is reset in the loop, and a sum on which
`backward()` is called.

## Why it is bad
A tensor keeps its graph, and the graph keeps activations. Without `backward()`, or with `retain_graph=True`, the
activations of every step stay in memory; after a plain `backward()` part of them does. The run is out of memory after a
few hundred steps, each time at another one.

## Example
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
history = []
for batch in loader:
    loss = model(**batch).loss
    loss.backward(retain_graph=True)
    optimizer.step()
    optimizer.zero_grad()
    history.append(loss)
```

## Use instead
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
history = []
for batch in loader:
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    history.append(loss.detach())
```

## Fix safety
Safe: the value stays the same, only its graph is freed. `.item()` returns a Python number, but waits for the GPU.

## References
- PyTorch documentation, FAQ: "My model reports cuda runtime error(2): out of memory"
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node, fix_of_changes
from truetune.checks.source.evidence.losses_kept_with_autograd_graph import (
    KeptLoss,
    backward_on_kept_loss,
    does_kept_loss_hold_autograd_graph,
    does_kept_sum_or_list_reach_backward,
    is_kept_list_renewed_or_bounded,
    kept_losses,
)
from truetune.source.make_source_edits import replace_expression
from truetune.source.parsed_source_file import Module


class LossesKeptWithGraph(SourceRule):
    code = "SRC085"
    fault = Fault.MEMORY_GROWS_IN_LOOP
    severity = "error"
    looks_at = CodePlaces("losses that a loop collects or adds up", kept_losses)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for kept in kept_losses(module):
            if not _keeps_graph_no_backward_uses(module, kept):
                continue
            backward = backward_on_kept_loss(module, kept)
            retains = backward is not None and _retains_graph(backward)
            whole = (backward is None and not kept.is_loop_run_by_trainer) or retains
            detached = _code_without_graph(module, kept.value)
            also = ", and remove retain_graph=True from backward()" if retains else ""
            yield self.finding(
                f"`{ast.unparse(kept.holder)}` keeps the loss of every step with its graph"
                f"{': the activations of all steps stay in memory' if whole else ', which keeps part of each step'}",
                f"keep {detached} instead{also}",
                severity="error" if whole else "warning",
                cases=[
                    case_of_node(module, node)
                    for node in (kept.node, backward if retains else None)
                    if node
                ],
                fix=fix_of_changes(module, replace_expression(module, kept.value, detached)),
            )


def _keeps_graph_no_backward_uses(module: Module, kept: KeptLoss) -> bool:
    """Does a kept loss hold a graph from step to step that no backward pass is still to use?"""
    if not does_kept_loss_hold_autograd_graph(module, kept) or is_kept_list_renewed_or_bounded(
        module, kept
    ):
        return False
    return not does_kept_sum_or_list_reach_backward(module, kept.holder)


def _retains_graph(backward: ast.Call) -> bool:
    """Does a backward pass keep its graph: `backward(retain_graph=True)`?"""
    values = (keyword.value for keyword in backward.keywords if keyword.arg == "retain_graph")
    return any(isinstance(value, ast.Constant) and value.value is True for value in values)


def _code_without_graph(module: Module, value: ast.expr) -> str:
    """The code of a value without its graph."""
    text = module.text_of(value)
    is_one_term = isinstance(value, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
    return f"{text}.detach()" if is_one_term else f"({text}).detach()"
