"""Says whether a script runs as several processes, and whether every process runs a place in it.

A script that is made for several processes says it: it starts or joins a process group, reads a
launcher's variables, asks which process it is, or a command beside it starts several. The
trade-off: a function that nothing in sight calls may be called by one process only, so that nothing
is said of it.
"""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from truetune.checks.source.evidence.process_counts import (
    command_starting_several_processes,
    signs_of_several_processes,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
ASKED_OF_ACCELERATE = re.compile(
    r"\.(?:is_main_process|is_local_main_process|wait_for_everyone|process_index|num_processes|gather\w*"
    r"|main_process_first|local_main_process_first|is_last_process)\b"
)
"""What a script asks an Accelerator only where there may be several processes"""
RANK_WORDS = re.compile(
    r"rank|(?:is|_|^)main_?process|process_zero|process_index|is_main\b|is_master|is_leader|is_chief|is_primary"
    r"|master_process|main_process|global_zero|should_save|is_first_process|is_writer|worker_id",
    re.I,
)
"""What a condition or a path that differs between processes is called"""
OWN_PATH = re.compile(
    r"rank|process_index|getpid|mkdtemp|mkstemp|TemporaryDirectory|NamedTemporary|uuid|tempfile",
    re.I,
)
"""Signs that each process has a path of its own"""
ONE_PROCESS_DECORATOR = re.compile(
    r"on_(?:local_)?main_process|rank_zero|main_only|master_only|on_process"
)
IN_TURN = re.compile(r"main_process_first|FileLock|SoftFileLock|\block\b|zero_first", re.I)
"""Contexts in which processes take turns"""
SPAWNERS = ("torch.multiprocessing.spawn", "*.mp.spawn", "accelerate.notebook_launcher")
"""Functions that start the processes from within: only what they are given runs in several"""
MAX_CALLERS_UP = 4
"""Functions that are followed outwards: a main, an epoch, a step and a helper"""
CALLBACK_METHOD = re.compile(r"on_[a-z_]+|training_step|save_model|_save\w*|train|evaluate")
"""Methods of callbacks and trainers, which a library calls in every process"""


class SeveralProcesses(NamedTuple):
    """That a script runs as several processes."""

    how: str
    is_certain: bool
    """Or is it only made for it?"""


def sign_of_several_processes(module: Module) -> SeveralProcesses | None:
    """What says that a script runs as several processes; None where nothing does."""
    command = command_starting_several_processes(module)
    if command is not None:
        return SeveralProcesses(f"the script is started as several processes: {command}", True)
    for part in module.self_and_files_run_together:
        sign = next(signs_of_several_processes(part), None)
        if sign is not None:
            line = part.place(sign)[0]
            how = (
                f"the script is written for several processes: {part.text_of(sign)} in line {line}"
            )
            return SeveralProcesses(how, any(part.calls("*.init_process_group")))
    for part in module.self_and_files_run_together:
        if any(part.calls("accelerate.Accelerator")) and any(
            ASKED_OF_ACCELERATE.search(linked.text) for linked in module.self_and_files_run_together
        ):
            return SeveralProcesses(
                "the script uses accelerate, which may start several processes", False
            )
    return None


def runs_in_every_process(module: Module, node: ast.AST, depth: int = MAX_CALLERS_UP) -> bool:
    """Does every process run a place: no condition on the process stands around it, before it, or
    around the calls of its function?"""
    inner = node
    for around in module.parents(node):
        if _is_process_condition_or_turn_context(module, around, inner):
            return False
        if isinstance(around, FUNCTIONS):
            return not _returns_early_for_some_processes(
                module, around, node
            ) and _is_called_by_every_process(module, around, depth)
        inner = around
    return not any(
        True for part in module.self_and_files_run_together for _ in part.calls(*SPAWNERS)
    )


def differs_by_process(module: Module, expression: ast.AST) -> bool:
    """Does a path or a condition name the process, itself or by where one of its names comes from?"""
    return _pattern_matches_expression_or_origins(module, expression, OWN_PATH)


def _is_process_condition_or_turn_context(module: Module, around: ast.AST, inner: ast.AST) -> bool:
    """Is it a condition on the process, or a context in which processes take turns?"""
    if isinstance(around, ast.If | ast.IfExp | ast.While) and inner is not around.test:
        return _pattern_matches_expression_or_origins(module, around.test, RANK_WORDS)
    if isinstance(around, ast.With | ast.AsyncWith):
        return any(IN_TURN.search(ast.unparse(item.context_expr)) for item in around.items)
    return False


def _pattern_matches_expression_or_origins(
    module: Module, expression: ast.AST, pattern: re.Pattern[str]
) -> bool:
    """Does a pattern stand in an expression, or in what one of its names stands for?"""
    if pattern.search(ast.unparse(expression)):
        return True
    names = (node for node in ast.walk(expression) if isinstance(node, ast.Name | ast.Attribute))
    return any(
        pattern.search(ast.unparse(origin.node))
        for name in names
        for origin in module.flow.origins(name)
        if isinstance(origin.node, ast.expr)
    )


def _returns_early_for_some_processes(module: Module, function: ast.AST, node: ast.AST) -> bool:
    """Does a function return for some processes above this place: `if rank != 0: return`?"""
    for part in ast.walk(function):
        if not isinstance(part, ast.If) or part.lineno >= getattr(node, "lineno", 0):
            continue
        ends = any(isinstance(inner, ast.Return | ast.Continue | ast.Raise) for inner in part.body)
        if ends and _pattern_matches_expression_or_origins(module, part.test, RANK_WORDS):
            return True
    return False


def _is_called_by_every_process(
    module: Module, function: ast.FunctionDef | ast.AsyncFunctionDef, depth: int
) -> bool:
    """Do all processes call a function: each that nothing keeps from it, or the library that it is
    given to?
    """
    if any(ONE_PROCESS_DECORATOR.search(ast.unparse(one)) for one in function.decorator_list):
        return False
    if _is_given_to_process_starter(module, function):
        return True
    callers = module.flow.calls_of_function_or_class(function)
    if not callers:
        return _is_called_by_library(module, function)
    return depth > 0 and any(
        runs_in_every_process(module.home(caller), caller, depth - 1) for caller in callers
    )


def _is_given_to_process_starter(
    module: Module, function: ast.FunctionDef | ast.AsyncFunctionDef
) -> bool:
    """Is a function given to what starts the processes?"""
    starts: list[Call] = [
        call for part in module.self_and_files_run_together for call in part.calls(*SPAWNERS)
    ]
    return any(call.args and ast.unparse(call.args[0]) == function.name for call in starts)


def _is_called_by_library(module: Module, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Is it a method of a callback or trainer, which the library calls in every process?"""
    owner = module.scopes.parent.get(function)
    if not isinstance(owner, ast.ClassDef) or not CALLBACK_METHOD.fullmatch(function.name):
        return False
    return any(
        re.search(r"Callback|Trainer|LightningModule", base)
        for base in map(ast.unparse, owner.bases)
    )
