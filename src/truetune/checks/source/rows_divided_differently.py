"""Each process divides the rows in an order of its own.

## What it does
Looks, in a loop of DistributedDataParallel that starts its processes itself, for a shuffle or a random split that no
seed makes alike on all processes, and whose rows are then divided by rank: `random.shuffle(rows)` before
`rows[rank::world]`, `random_split(rows, ...)` without a generator before `DistributedSampler`.

## Why it is bad
Every process starts with a random state of its own. The parts of a list that each shuffles its own way overlap, and
rows that no process takes are never trained on. Of a random split, one process trains on the rows that another
validates on: the validation loss is too good.

## Example
```python
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, random_split

torch.distributed.init_process_group("nccl")
model = DistributedDataParallel(net)
train, held_out = random_split(rows, [900, 100])
loader = DataLoader(train, sampler=DistributedSampler(train))
```

## Use instead
```python
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, random_split

torch.distributed.init_process_group("nccl")
model = DistributedDataParallel(net)
train, held_out = random_split(rows, [900, 100], generator=torch.Generator().manual_seed(0))
loader = DataLoader(train, sampler=DistributedSampler(train))
```

## Fix safety
Safe: one seed on all processes gives one order. Where the seed depends on the rank, seed a generator of its own for
the division.

## References
- https://docs.pytorch.org/docs/stable/data.html (`torch.utils.data.random_split`, `DistributedSampler`)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.backward_slices import backward_slice
from truetune.checks.source.evidence.cases_and_fixes import case_at
from truetune.checks.source.evidence.multi_process_loops import (
    FUNCTIONS,
    mentions_process,
    wrapped_models,
)
from truetune.source.module import Module
from truetune.source.resolved_calls import Call

SPLITS = ("torch.utils.data.random_split", "torch.utils.data.dataset.random_split")
SHUFFLES = ("random.shuffle", "numpy.random.shuffle")
ORDERS = ("numpy.random.permutation", "torch.randperm")
SEEDS = re.compile(
    r"seed\w*\s*\(|default_rng\(|RandomState\(|Random\(|broadcast|scatter_object", re.I
)
"""Signs that processes draw alike, or that one gives the others its order; said of all files together"""


def _random_orders(module: Module) -> Iterator[Call]:
    """Random orders in a script that starts its processes itself."""
    if any(wrapped_models(module)):
        yield from module.calls(*SPLITS)
        yield from module.calls(*SHUFFLES)
        yield from module.calls(*ORDERS)


class RowsDividedDifferently(SourceRule):
    code = "SRC092"
    severity = "error"
    looks_at = CodePlaces("random orders in scripts of several processes", _random_orders)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if any(SEEDS.search(part.text) for part in module.with_linked):
            return
        for call in _random_orders(module):
            if call.named(*SPLITS):
                # With a generator each process draws alike; without a sampler the parts are not dealt out to
                # processes.
                is_wrong = call.argument(2, "generator") is None and _is_sampled(module, call)
                text = "each process splits the rows another way: one trains on what another validates on"
                fix = "give random_split generator=torch.Generator().manual_seed(0)"
            else:
                is_wrong = _is_cut_by_rank(module, call)
                text = "each process shuffles the rows another way before it takes its part: parts overlap"
                fix = (
                    "seed alike on all processes before (random.seed(0)), or use DistributedSampler"
                )
            if is_wrong and not call.open:
                yield self.finding(
                    text,
                    fix,
                    evidence=[
                        "every process starts with a random state of its own, and no seed is set"
                    ],
                    cases=[case_at(module, call.node)],
                )


def _is_sampled(module: Module, split: Call) -> bool:
    """Does a DistributedSampler deal out a part of the split?"""
    for sampler in module.calls("torch.*.DistributedSampler"):
        rows = sampler.argument(0, "dataset")
        if rows is not None and any(part is split.node for part in backward_slice(module, rows)):
            return True
    return False


def _is_cut_by_rank(module: Module, shuffle: Call) -> bool:
    """Is the shuffled list, or the order, cut behind it by numbers that say which process this is, in one function?"""
    name = _shuffled_name(module, shuffle)
    if name is None:
        return False
    guards = (one for one in module.parents(shuffle.node) if isinstance(one, ast.If))
    # One process shuffles alone, and may send its order to the others.
    if any(mentions_process(module, guard.test) for guard in guards):
        return False
    for part in module.nodes(ast.Subscript):
        is_of_list = isinstance(part.value, ast.Name) and part.value.id == name.id
        # Above the shuffle the list still has its own order.
        if not is_of_list or part.lineno <= shuffle.node.lineno:
            continue
        is_beside = _enclosing_function(module, part) is _enclosing_function(module, name)
        if is_beside and mentions_process(module, part.slice):
            return True
    return False


def _shuffled_name(module: Module, shuffle: Call) -> ast.Name | None:
    """The name of the list that is shuffled in place, or that a drawn order is assigned to."""
    name = shuffle.args[0] if shuffle.args else None
    if shuffle.named(*ORDERS):
        statement = module.statement(shuffle.node)
        name = statement.targets[0] if isinstance(statement, ast.Assign) else None
    return name if isinstance(name, ast.Name) else None


def _enclosing_function(module: Module, node: ast.AST) -> ast.AST | None:
    """The function in which a node stands; None at the top of the file."""
    return next((part for part in module.parents(node) if isinstance(part, FUNCTIONS)), None)
