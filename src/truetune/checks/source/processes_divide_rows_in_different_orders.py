"""Each process divides the rows in its own random order.

## What it does
Looks, in a script that runs as several processes (one per GPU), for a shuffle, a sample or a random split whose
generator does not get the same seed on every process, and whose rows are then split: `random.shuffle(rows)` before
`rows[rank::world]` or before `rows[:900]` and `rows[900:]`, `random_split` and `train_test_split` without a seed before
a `DistributedSampler`, `prepare` or a Trainer. Python's `random`, numpy and PyTorch have separate generators:
`torch.manual_seed` does not seed the other two. A script runs as several processes if it wraps its model for them, uses
Accelerate, or a command of the project starts it so. It does not fire if only one process shuffles, or sends its order
to the others.

## Why it is bad
Every process starts with its own random state. If each shuffles a list differently, the parts overlap, and rows that no
process takes are never trained on. With a random split, one process trains on rows that another uses for validation, so
the validation loss looks too good.

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
Safe: the same seed on all processes gives the same order. If your script's seed depends on the rank, use a separate
generator with a fixed seed for the split.

## References
- https://docs.pytorch.org/docs/stable/data.html (`torch.utils.data.random_split`, `DistributedSampler`)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.multi_process_loops import (
    FUNCTIONS,
    mentions_process,
    models_wrapped_by_own_loops,
)
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.checks.source.evidence.row_orders_and_splits_without_seed import (
    RandomDraw,
    is_seeded_alike_on_all_processes,
    random_draws_without_own_seed,
)
from truetune.checks.source.evidence.rows_divided_by_process import (
    depends_on_process_number_or_count,
)
from truetune.settings.stacks.find_who_reads_config_or_starts_script import (
    commands_that_launch_several_processes,
)
from truetune.source.parsed_source_file import Module

AGREES = re.compile(r"broadcast|scatter_object|main_process_first", re.I)
"""Signs that one process gives the others its order; said of all files together"""
GENERATORS = {
    "random": "Python's random",
    "numpy": "numpy's generator",
    "torch": "PyTorch's generator",
}
TRAIN_ROWS = "train_dataset"


def _random_draws_of_processes(module: Module) -> Iterator[RandomDraw]:
    """Random orders in a script that runs as several processes."""
    if _wraps_model_or_starts_several_processes(module):
        yield from random_draws_without_own_seed(module)


class ProcessesDivideRowsInDifferentOrders(SourceRule):
    code = "SRC092"
    fault = Fault.ROWS_DIVIDED_WRONGLY_OVER_PROCESSES
    symptoms = ("several-gpus",)
    severity = "error"
    looks_at = CodePlaces(
        "random orders in scripts of several processes", _random_draws_of_processes
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        parts = module.self_and_files_run_together
        if any(AGREES.search(part.text) for part in parts):
            return
        for draw in _random_draws_of_processes(module):
            if is_seeded_alike_on_all_processes(
                parts, draw.generator
            ) or _is_drawn_by_one_process_alone(module, draw):
                continue
            text = _effect_of_draw(module, draw)
            if text:
                yield self.finding(
                    text,
                    f"set the same seed on all processes before this line ({draw.seed}), or split the rows with a"
                    " separate generator that has a fixed seed",
                    severity="error" if any(models_wrapped_by_own_loops(module)) else "warning",
                    evidence=[
                        "every process starts with its own random state, and nothing gives"
                        f" {GENERATORS[draw.generator]} the same seed on all of them"
                    ],
                    cases=[case_of_node(module, draw.call.node)],
                )


def _wraps_model_or_starts_several_processes(module: Module) -> bool:
    """Does a script wrap its model for several processes, or does a command of the project start several?"""
    if any(models_wrapped_by_own_loops(module)):
        return True
    parts = module.self_and_files_run_together
    if any(
        next(commands_that_launch_several_processes(Path(part.path)), None) is not None
        for part in parts
    ):
        return True
    starts = ("torch.distributed.init_process_group",)
    return any(True for part in parts for _ in part.calls(*starts))


def _is_drawn_by_one_process_alone(module: Module, draw: RandomDraw) -> bool:
    """Does one process draw alone? It may send its order to the others."""
    guards = (one for one in module.parents(draw.call.node) if isinstance(one, ast.If))
    return any(mentions_process(module, guard.test) for guard in guards)


def _effect_of_draw(module: Module, draw: RandomDraw) -> str:
    """What comes of the draw, in words; empty where nothing divides what was drawn."""
    if draw.is_split:
        if _is_dealt_out_by_library(module, draw) or _is_cut_by_process(module, draw):
            return "each process splits the rows differently: one trains on rows that another validates on"
        return ""
    if _is_cut_by_process(module, draw) or _is_dealt_out_by_library(module, draw):
        return (
            "each process shuffles the rows differently before it takes its part: the parts overlap"
        )
    if _is_cut_into_head_and_tail(module, draw):
        return (
            "each process shuffles the rows differently before they are split: one trains on rows that another"
            " validates on"
        )
    return ""


def _is_dealt_out_by_library(module: Module, draw: RandomDraw) -> bool:
    """Does a sampler of PyTorch, Accelerate or a Trainer deal out what was drawn to the processes?"""
    dealt: list[ast.expr] = []
    for sampler in module.calls("torch.*.DistributedSampler"):
        dealt += [rows for rows in (sampler.argument(0, "dataset"),) if rows is not None]
    for trainer in module.all_calls:
        if TRAIN_ROWS in trainer.keywords:
            dealt.append(trainer.keywords[TRAIN_ROWS])
    for call in module.methods("prepare"):
        if call.receiver is not None and "accelerator" in module.flow.types(call.receiver):
            dealt += [one for one in call.args if "loader" in module.flow.types(one)]
    return any(_come_from_draw(module, rows, draw) for rows in dealt)


def _is_cut_by_process(module: Module, draw: RandomDraw) -> bool:
    """Are the drawn rows cut later by numbers that say which process this is?"""
    return any(
        depends_on_process_number_or_count(module, part.slice)
        and _come_from_draw(module, part.value, draw)
        for part in module.nodes(ast.Subscript)
    )


def _is_cut_into_head_and_tail(module: Module, draw: RandomDraw) -> bool:
    """Are the drawn rows cut into a part before and a part behind one place: `rows[:n]` and
    `rows[n:]`?
    """
    ends: set[str] = set()
    begins: set[str] = set()
    for part in module.nodes(ast.Subscript):
        if not isinstance(part.slice, ast.Slice) or not _come_from_draw(module, part.value, draw):
            continue
        if part.slice.lower is None and part.slice.upper is not None:
            ends.add(ast.unparse(part.slice.upper))
        if part.slice.upper is None and part.slice.lower is not None:
            begins.add(ast.unparse(part.slice.lower))
    return bool(ends & begins)


def _come_from_draw(module: Module, rows: ast.expr, draw: RandomDraw) -> bool:
    """Do rows come from what was drawn?"""
    drawn = _drawn_name(module, draw)
    function = _enclosing_function(module, draw.call.node)
    for part in backward_slice(module, rows):
        if part is draw.call.node:
            return True
        is_same = isinstance(part, ast.Name) and drawn is not None and part.id == drawn.id
        # Above the shuffle the list still has its own order.
        if is_same and _enclosing_function(module, part) is function:
            if getattr(part, "lineno", 0) > draw.call.node.lineno:
                return True
    return drawn is not None and _are_returned_by_shuffling_function(module, rows, drawn)


def _are_returned_by_shuffling_function(module: Module, rows: ast.expr, drawn: ast.Name) -> bool:
    """Are rows what a function gives back, that shuffles a list in place?"""
    function = _enclosing_function(module, drawn)
    if function is None:
        return False
    returned = any(
        isinstance(part, ast.Return)
        and isinstance(part.value, ast.Name)
        and part.value.id == drawn.id
        for part in ast.walk(function)
    )
    if not returned:
        return False
    # The value of a call is followed to where the function made the list.
    made = {id(origin.node) for origin in module.flow.origins(drawn)}
    made |= {id(call) for call in module.flow.calls_of_function_or_class(function)}
    return any(id(part) in made for part in backward_slice(module, rows))


def _drawn_name(module: Module, draw: RandomDraw) -> ast.Name | None:
    """The name of the list that is shuffled in place; None for a draw that gives a new one."""
    first = draw.call.args[0] if draw.is_in_place and draw.call.args else None
    return first if isinstance(first, ast.Name) else None


def _enclosing_function(module: Module, node: ast.AST) -> ast.AST | None:
    """The function in which a node stands; None at the top of the file."""
    return next((part for part in module.parents(node) if isinstance(part, FUNCTIONS)), None)
