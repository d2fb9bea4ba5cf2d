"""Finds hand-written loops that run as several processes: what wraps their models, and whether a
library steers them instead.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
STEERED = re.compile(
    r"(?P<trainer>\w*Trainer)\(|Accelerator\(|[lL]ightning|[fF]abric|deepspeed|ray\.train|torchtitan"
)
"""Libraries that place models, save and sample for the processes"""
OWN_TRAINER = re.compile(r"^class (\w*Trainer)\s*(?:\(\s*(?:object)?\s*\))?:", re.MULTILINE)
"""A class that is derived from none of a library: the tutorials of PyTorch call theirs Trainer"""
BY_RANK = re.compile(r"rank|main|master|primary|leader|first|world|local|node|proc|gpu", re.I)
"""What a condition on the process says"""


def loops_around_with_callers(module: Module, node: ast.AST, depth: int = 3) -> list[ast.AST]:
    """The loops in which a place runs, from the inside out: around it, and around the calls of its
    function.
    """
    loops: list[ast.AST] = []
    for parent in module.parents(node):
        if isinstance(parent, LOOPS):
            loops.append(parent)
        if isinstance(parent, FUNCTIONS):
            callers = module.flow.calls_of_function_or_class(parent) if depth else []
            around = [loops_around_with_callers(module, caller, depth - 1) for caller in callers]
            return loops + max(around, key=len, default=[])
    return loops


def for_loops_of_linked_files(module: Module) -> Iterator[ast.For]:
    """The loops of a file and of those that run with it: a loader is often made in a file of its
    own.
    """
    for part in module.self_and_files_run_together:
        yield from part.nodes(ast.For)


def does_library_manage_processes(parts: Sequence[Module]) -> bool:
    """Does a library place models, save and sample for the processes of these files?"""
    own = {name for part in parts for name in OWN_TRAINER.findall(part.text)}
    return any(
        match["trainer"] not in own for part in parts for match in STEERED.finditer(part.text)
    )


def models_wrapped_by_own_loops(module: Module) -> Iterator[Call]:
    """Models that a hand-written loop wraps for several processes, where no library steers them."""
    parts = module.self_and_files_run_together
    if does_library_manage_processes(parts):
        return
    if any(True for part in parts for _ in part.calls("torch.distributed.init_process_group")):
        yield from module.calls("torch.*.DistributedDataParallel")


# Four functions: a main, an epoch, a step and a helper. At the end it counts as guarded, so that nothing is told.
def runs_in_some_processes_only(module: Module, node: ast.AST, depth: int = 4) -> bool:
    """Does a condition on the process stand around a place, or around each call of its function?

    A function that nothing in sight calls counts as one: who calls it may ask.
    """
    inner = node
    for around in module.parents(node):
        if isinstance(around, ast.If | ast.IfExp) and inner is not around.test:
            if mentions_process(module, around.test):
                return True
        if isinstance(around, FUNCTIONS):
            if _returns_early_for_some_processes(module, around, node):
                return True
            callers = module.flow.calls_of_function_or_class(around)
            return (
                not callers
                or depth == 0
                or any(runs_in_some_processes_only(module, caller, depth - 1) for caller in callers)
            )
        inner = around
    return False


def mentions_process(module: Module, expression: ast.AST) -> bool:
    """Does an expression name a process, by its own words or by where the value of one of its names
    comes from?

    `R, W = dist.get_rank(), dist.get_world_size()` makes `rows[R::W]` such an expression.
    """
    if BY_RANK.search(ast.unparse(expression)):
        return True
    return any(
        BY_RANK.search(ast.unparse(origin.node))
        for name in ast.walk(expression)
        if isinstance(name, ast.Name)
        for origin in module.flow.origins(name)
        if isinstance(origin.node, ast.expr)
    )


def _returns_early_for_some_processes(module: Module, function: ast.AST, node: ast.AST) -> bool:
    """Does a function return for some processes before this place: `if rank != 0: return`?"""
    for part in ast.walk(function):
        # Only what stands above: a return behind the place does not keep it from running.
        if not isinstance(part, ast.If) or part.lineno >= getattr(node, "lineno", 0):
            continue
        ends = any(isinstance(inner, ast.Return | ast.Continue | ast.Raise) for inner in part.body)
        if ends and mentions_process(module, part.test):
            return True
    return False
