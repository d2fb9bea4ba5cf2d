"""A loop makes a new iterator over its loader at each step, so it trains only on the first batch.

## What it does
Finds `next(iter(loader))` in the body of a loop that also calls `backward()`. It is an error if the `DataLoader` keeps
the order: `shuffle` is not set or False, and it has no sampler. A loader that shuffles draws its first batch from a new
order each time: some rows are seen more often than others, and each step starts the workers again. That is info. An
iterator that is created before the loop is right.

## Why it is bad
`iter(loader)` starts at the first row again. Every step sees the same few rows, and the loss falls to zero on them,
while the rest of the data is never read.

## Example
```python
from torch.utils.data import DataLoader

loader = DataLoader(rows, batch_size=8)
for step in range(1000):
    batch = next(iter(loader))
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
```

## Use instead
```python
from itertools import islice

from torch.utils.data import DataLoader

loader = DataLoader(rows, batch_size=8, shuffle=True)
for batch in islice(loader, 1000):
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
```

## Fix safety
Safe. To test that a model can memorise one batch, take the batch before the loop, so that the code says so.

## References
- https://docs.pytorch.org/docs/stable/data.html (`DataLoader`, `shuffle`: "reshuffled at every epoch")
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.backward_and_optimizer_step_calls import is_backward_call
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
KEEPS_LOADER = ("prepare", "prepare_data_loader")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def _loaders_of_own_training_loop(module: Module) -> Iterator[object]:
    """Loaders of a script that trains in a loop of its own."""
    if any(module.methods("backward")):
        yield from module.calls(*LOADERS)


class FirstBatchAtEveryStep(SourceRule):
    code = "SRC286"
    fault = Fault.ROWS_MISSING_FROM_TRAINING
    symptoms = ("nothing-is-learned", "loss-does-not-fall")
    severity = "error"
    looks_at = CodePlaces("loaders of loops that compute gradients", _loaders_of_own_training_loop)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for node in module.nodes(ast.Call):
            loader = _loader_of_next_iter(module, node)
            if loader is None or not _is_nearest_loop_training(module, node):
                continue
            order = _order_of_loader(module, loader)
            if order is None:
                continue
            shuffled = order == "shuffled"
            name = module.text_of(loader)
            yield self.finding(
                f"next(iter({name})) makes a new iterator at each step: "
                + (
                    "each batch is the first of a new random order, so some rows are seen more often than others,"
                    " and the"
                    " workers start again each time"
                    if shuffled
                    else "each step gets the same first batch, and no other row is ever seen"
                ),
                f"loop over {name} itself: `for batch in itertools.islice({name}, steps):`, or call iter({name})"
                " before the loop",
                severity="info" if shuffled else self.severity,
                cases=[case_of_node(module, node)],
            )


def _loader_of_next_iter(module: Module, node: ast.Call) -> ast.expr | None:
    """The loader of `next(iter(loader))`; None for any other call."""
    if module.flow.name(node.func) != "next" or not node.args:
        return None
    begun = node.args[0]
    is_iter = isinstance(begun, ast.Call) and module.flow.name(begun.func) == "iter"
    return begun.args[0] if isinstance(begun, ast.Call) and is_iter and begun.args else None


def _is_nearest_loop_training(module: Module, node: ast.AST) -> bool:
    """Is the nearest loop around it one that computes gradients, in no loop of its own within?"""
    for parent in module.parents(node):
        if isinstance(parent, FUNCTIONS):
            return False
        if isinstance(parent, (ast.For, ast.While)):
            return any(_computes_gradients(statement) for statement in parent.body)
    return False


def _computes_gradients(node: ast.AST) -> bool:
    """Does a statement call backward, outside of loops within it?"""
    if isinstance(node, (ast.For, ast.While, *FUNCTIONS)):
        return False
    return is_backward_call(node) or any(map(_computes_gradients, ast.iter_child_nodes(node)))


def _order_of_loader(module: Module, loader: ast.expr) -> str | None:
    """`in order` or `shuffled`; None where it is not known."""
    calls = list(_loader_calls(module, loader))
    if not calls or not all(call.named(*LOADERS) for call in calls):
        return None
    orders = {_order_of_call(module, call) for call in calls}
    return orders.pop() if len(orders) == 1 else None


def _loader_calls(module: Module, loader: ast.expr) -> Iterator[Call]:
    """The calls that made a loader, through `accelerator.prepare`."""
    for origin in module.flow.origins(loader):
        if not isinstance(origin.node, ast.Call):
            continue
        call = module.flow.call(origin.node)
        if call.method not in KEEPS_LOADER:
            yield call
            continue
        place = origin.path[0] if origin.path else 0
        for part in call.args[place : place + 1] if place >= 0 else ():
            for below in module.flow.origins(part):
                if isinstance(below.node, ast.Call):
                    yield module.flow.call(below.node)


def _order_of_call(module: Module, call: Call) -> str | None:
    """The order of one loader, where its arguments say it."""
    if call.open or any(name in call.keywords for name in ("sampler", "batch_sampler")):
        return None
    shuffle = call.argument(2, "shuffle")
    if shuffle is None:
        return "in order"
    value = module.flow.value(shuffle)
    if not isinstance(value, bool):
        return None
    return "shuffled" if value else "in order"
