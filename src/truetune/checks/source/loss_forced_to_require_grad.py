"""A loss is set to require a gradient: if it has no graph, backward() runs but nothing is trained.

## What it does
Looks for a loss that gets `requires_grad` by hand and on which `backward()` is called in the same function:
`loss.requires_grad_(True)`, `loss.requires_grad = True`. That is a warning. It is an error if the graph is certainly
lost: `torch.tensor(loss, requires_grad=True)` or `Variable(loss, requires_grad=True)`, or a loss (also one that
`compute_loss` returns or a helper makes) that is computed only from such a tensor, or from an output of the model that
was detached and then set to require a gradient.

## Why it is bad
A loss that comes from trained weights requires a gradient by itself. If torch says "element 0 of tensors does not
require grad", no weight is trained or the graph was cut (`detach`, `item`, `no_grad`, frozen weights, an adapter that
was loaded frozen). Setting it by hand only hides that error: the gradient ends at the loss, no step changes anything,
and the loss stays flat.

## Example
```python
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
for batch in batches:
    loss = model(**batch).loss
    loss.requires_grad_(True)
    loss.backward()
```

## Use instead
```python
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
for batch in batches:
    loss = model(**batch).loss
    loss.backward()
```

## Fix safety
There is no automatic fix: without the line torch raises an error until you find what cuts the graph. Print `[n for n, p
in model.named_parameters() if p.requires_grad]` first. With gradient checkpointing and frozen embeddings, call
`model.enable_input_require_grads()`.

## References
- https://docs.pytorch.org/docs/stable/notes/autograd.html#setting-requires-grad
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.backward_and_optimizer_step_calls import (
    backward_calls,
    possible_losses,
)
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.losses_without_autograd_graph import (
    TAKES_GRADIENTS_ITSELF,
    GraphlessLossSearch,
    losses_returned_to_trainers,
)
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import (
    may_record_gradients,
)
from truetune.source.parsed_source_file import Module

LEAF_MAKERS = ("torch.tensor", "torch.autograd.Variable", "torch.autograd.variable.Variable")
"""Calls that make a new leaf: what they are given keeps its value, and loses its graph"""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def _losses_for_backward_or_trainer(module: Module) -> Iterator[ast.expr]:
    """What backward() is called on, or a trainer is given as the loss."""
    for call in backward_calls(module):
        yield from possible_losses(call)
    yield from losses_returned_to_trainers(module)


class LossForcedToRequireGrad(SourceRule):
    code = "SRC083"
    fault = Fault.GRADIENTS_NEVER_REACH_OPTIMIZER
    symptoms = ("loss-does-not-fall",)
    severity = "warning"
    looks_at = CodePlaces(
        "calls of backward(), and losses that a trainer is given", _losses_for_backward_or_trainer
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        losses = {
            (_enclosing_function(module, loss), ast.unparse(loss))
            for call in backward_calls(module)
            for loss in possible_losses(call)
        }
        reported_nodes: set[ast.AST] = set()
        for forced in _forced_gradients(module):
            if (_enclosing_function(module, forced.node), ast.unparse(forced.target)) in losses:
                reported_nodes.add(forced.value)
                is_cut = forced.is_leaf or _is_made_without_gradients(module, forced.target)
                yield self.finding(
                    f"`{module.text_of(forced.node)}` {forced.effect}",
                    "remove the line that sets requires_grad on the loss; if torch then raises an error, find what"
                    " cuts the"
                    " graph: frozen weights, no_grad, detach() or item()",
                    severity="error" if is_cut else "warning",
                    cases=[case_of_node(module, forced.node)],
                )
        yield from self._findings_on_new_leaves(reported_nodes)

    def _findings_on_new_leaves(self, told: set[ast.AST]) -> Iterator[Finding]:
        """Findings on losses that are made of a new leaf alone, wherever it is made."""
        module = self.subject
        if any(
            TAKES_GRADIENTS_ITSELF.search(part.text) for part in module.self_and_files_run_together
        ):
            return
        forced = [
            one for part in module.self_and_files_run_together for one in _forced_gradients(part)
        ]
        leaves = {one.value for one in forced if one.is_leaf} | _leaves_made_of_computed_values(
            module
        )
        names: dict[tuple[ast.AST | None, str], ast.AST] = {
            (module.function_around(one.node), ast.unparse(one.target)): one.node
            for one in forced
            if not one.is_leaf
        }
        for loss in _losses_for_backward_or_trainer(module):
            leaf = GraphlessLossSearch(module, leaves, names).only_leaf_tensor(loss)
            if leaf is not None and leaf not in told:
                told.add(leaf)
                yield self.finding(
                    f"the loss is computed only from `{module.text_of(leaf)}`, which has no graph: no weight is"
                    " trained",
                    "compute the loss from the model's output itself, without item(), detach() or torch.tensor()",
                    severity="error",
                    cases=[case_of_node(module, leaf), case_of_node(module, loss)],
                )


class ForcedGradient(NamedTuple):
    """A place where something is given requires_grad by hand."""

    node: ast.AST
    target: ast.expr
    is_leaf: bool
    """Is it a new tensor, without its graph?"""
    value: ast.AST
    """The call that makes the new tensor; else the place itself"""

    @property
    def effect(self) -> str:
        """What that does to the training, in words: a loss without a graph, or a hidden error of torch."""
        if self.is_leaf:
            return "creates a loss without a graph: no weight is trained"
        return "hides torch's error if the loss has no graph: then no weight is trained"


def _forced_gradients(module: Module) -> Iterator[ForcedGradient]:
    """The places where something is given requires_grad by hand."""
    for call in module.methods("requires_grad_"):
        requires_grad_argument = call.argument(0, "requires_grad")
        if isinstance(call.node.func, ast.Attribute) and (
            requires_grad_argument is None or module.flow.value(requires_grad_argument) is True
        ):
            yield ForcedGradient(call.node, call.node.func.value, False, call.node)
    for assigned in module.nodes(ast.Assign):
        target = assigned.targets[0]
        if isinstance(target, ast.Attribute) and target.attr == "requires_grad":
            if module.flow.value(assigned.value) is True:
                yield ForcedGradient(assigned, target.value, False, assigned)
        elif _makes_leaf_of_computed_value(module, assigned.value):
            yield ForcedGradient(assigned, target, True, assigned.value)


def _leaves_made_of_computed_values(module: Module) -> set[ast.expr]:
    """The calls of the files that make a leaf with requires_grad of something that was computed."""
    return {
        node
        for part in module.self_and_files_run_together
        for node in part.nodes(ast.Call)
        if _makes_leaf_of_computed_value(part, node)
    }


def _makes_leaf_of_computed_value(module: Module, value: ast.expr) -> bool:
    """Does this make a leaf with requires_grad of something that was computed? A number that is written out is a
    parameter of the user's own."""
    # `torch.tensor(losses, requires_grad=True).mean()` is a leaf with a method behind it.
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if module.flow.call(value).named(*LEAF_MAKERS):
            break
        value = value.func.value
    if not isinstance(value, ast.Call) or not module.flow.call(value).named(*LEAF_MAKERS):
        return False
    call = module.flow.call(value)
    data_argument, requires_grad_argument = (
        call.argument(0, "data"),
        call.keywords.get("requires_grad"),
    )
    is_computed = data_argument is not None and any(
        isinstance(node, ast.Name) for node in ast.walk(data_argument)
    )
    return (
        is_computed
        and requires_grad_argument is not None
        and module.flow.value(requires_grad_argument) is True
    )


def _is_made_without_gradients(module: Module, loss: ast.expr) -> bool:
    """Is a loss surely computed where no gradient is recorded: in a `no_grad` block, or a function of that kind?"""
    made = [origin.node for origin in module.flow.origins(loss)]
    return all(one is not loss and not may_record_gradients(module, one) for one in made)


def _enclosing_function(module: Module, node: ast.AST) -> ast.AST | None:
    """The function in which a node stands; None at the top of the file."""
    return next((parent for parent in module.parents(node) if isinstance(parent, FUNCTIONS)), None)
