"""A DistributedSampler gives the rows in the same order in every epoch.

## What it does
Looks for a `DistributedSampler` that shuffles, in a script that trains for several epochs and never calls `set_epoch`.
The loops may be in other functions and files, or in an endless generator (`while True`, `itertools.cycle`).

## Why it is bad
The sampler computes its order from its seed and its epoch. Without `set_epoch` the epoch stays 0: each process (one per
GPU) gets the same rows in the same order and the same batches in every epoch, and never the rows of the other
processes.

## Example
```python
import torch
from torch.utils.data import DataLoader, DistributedSampler

sampler = DistributedSampler(rows, shuffle=True)
loader = DataLoader(rows, batch_size=4, sampler=sampler)
for epoch in range(3):
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
```

## Use instead
```python
import torch
from torch.utils.data import DataLoader, DistributedSampler

sampler = DistributedSampler(rows, shuffle=True)
loader = DataLoader(rows, batch_size=4, sampler=sampler)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
```

## Fix safety
Safe. The batches of later epochs differ from those before, so their losses can't be compared step by step.

## References
- https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces, places_of_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.multi_process_loops import (
    does_library_manage_processes,
    loops_around_with_callers,
)
from truetune.source.parsed_source_file import Module

SAMPLERS: CodePlaces = places_of_calls(
    "samplers of several processes", "torch.utils.data.*DistributedSampler"
)


class SamplerRepeatsItsOrder(SourceRule):
    code = "SRC097"
    fault = Fault.ROWS_IN_FIXED_ORDER
    severity = "warning"
    looks_at = SAMPLERS

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        parts = module.self_and_files_run_together
        # Libraries that steer the loop call set_epoch themselves.
        if module.mentions("set_epoch") or does_library_manage_processes(parts):
            return
        if not any(True for part in parts for _ in part.methods("backward")):
            return
        for call in module.calls("torch.utils.data.*DistributedSampler"):
            shuffles = (
                module.flow.value(call.argument(3, "shuffle"))
                if not call.lacks("shuffle", 3)
                else True
            )
            if shuffles is True and not call.open and _is_read_in_several_rounds(module, call.node):
                yield self.finding(
                    "the sampler gives the same order in every epoch, since nothing calls set_epoch: each process"
                    " trains on the same batches again and again",
                    "call set_epoch(epoch) of this sampler at the start of each epoch",
                    cases=[case_of_node(module, call.node)],
                )


def _loops_around_backward(module: Module) -> Iterator[list[ast.AST]]:
    """The loops around each backward pass, and around what a generator of batches yields, from the inside out.

    The passes, the loop over the loader and that over epochs may stand in functions of their own, and in other files.
    """
    for part in module.self_and_files_run_together:
        for call in part.methods("backward"):
            yield loops_around_with_callers(part, call.node)
        for node in part.nodes(ast.Yield):
            yield loops_around_with_callers(part, node, depth=0)


def _is_read_in_several_rounds(module: Module, sampler: ast.AST) -> bool:
    """Does a loop read the sampler's loader, inside of another that may have more than one round?"""
    for loops in _loops_around_backward(module):
        # The outermost loop is that over epochs: `range(1)` needs no other order.
        if len(loops) < 2 or _has_one_round(module, loops[-1]):
            continue
        for loop in loops[:-1]:
            if isinstance(loop, ast.For) and _reads_loader_of(module, loop.iter, sampler):
                return True
    return any(
        _reads_loader_of(module, call.args[0], sampler)
        for part in module.self_and_files_run_together
        for call in part.calls("itertools.cycle")
        if call.args
    )


def _has_one_round(module: Module, loop: ast.AST) -> bool:
    """Does the loop have one round: `for ... in range(1)`?"""
    if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call):
        return False
    counts = [module.flow.value(arg) for arg in loop.iter.args]
    return module.flow.name(loop.iter.func) == "range" and counts == [1]


def _reads_loader_of(module: Module, iterated: ast.expr, sampler: ast.AST) -> bool:
    """Does an iterated expression hold a loader with this sampler: `loader`, `tqdm(loader)`, `enumerate(loader)`?"""
    for part in ast.walk(iterated):
        if not isinstance(part, ast.Name | ast.Attribute | ast.Call):
            continue
        loader = module.flow.producing_call(part)
        sampler_argument = loader.argument(3, "sampler") if loader is not None else None
        if sampler_argument is not None and any(
            one.node is sampler for one in module.flow.origins(sampler_argument)
        ):
            return True
    return False
