"""Finds batches that one process may skip by figures of its own, while the other processes make a
collective call for theirs.

How it works: a place that leaves a batch (`continue`, a `return` before the backward pass, an
`except` that swallows the error of a step) is one where its condition is computed from the batch or
from its loss, and a backward pass or a call that waits for all stands behind it. The trade-off:
where the loop, or a function that the condition calls, makes processes agree (all_reduce, gather),
nothing is said, whatever they agree on.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.checks.source.evidence.several_process_scripts import RANK_WORDS
from truetune.source.parsed_source_file import Module

Loop = ast.For | ast.AsyncFor
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
AGREEMENT = re.compile(
    r"all_?reduce|broadcast|all_?gather|\.gather\(|\.reduce\(|dist\.reduce|\bJoin\(|join_uneven_inputs"
)
"""Signs that processes agree on what they do"""
BACKWARD = frozenset(("backward", "manual_backward"))
COLLECTIVES = frozenset(
    (
        "gather",
        "gather_for_metrics",
        "wait_for_everyone",
        "barrier",
        "all_reduce",
        "all_gather",
        "pad_across_processes",
    )
)
BATCH_NAME = re.compile(r"batch|sample|example|inputs?|data|rows?|mini", re.I)
STEP_NAME = re.compile(
    r"(?:step|idx|index|i|it|iteration|epoch|n|global_step|num\w*|count\w*)", re.I
)
"""Names of counters, which all processes count alike"""
ENGINE_SIGNS = re.compile(
    r"\.prepare\(|DistributedDataParallel|FullyShardedDataParallel|fully_shard|deepspeed\.initialize|\bDDP\(|\bFSDP\("
    r"|\.setup\(|\.setup_module\("
)
"""What wraps a model whose backward pass waits for all processes"""
OWN_ROWS = re.compile(
    r"\.prepare\(|DistributedSampler|DistributedBatchSampler|split_dataset_by_node|training_data=|setup_dataloaders|\.shard\("
    r"|rank\s*::"
)
"""What deals out other rows to each process"""
SIZE_OF_BATCH = re.compile(r"len\(\w+\)|\.size\(0\)|\.shape\[0\]|batch_size")
"""How many rows a batch has: the same in all processes, for samplers fill up the last one"""
ENDS = frozenset(("exit", "sys.exit", "os._exit", "quit", "os.abort"))
SWALLOWED = re.compile(
    r"OutOfMemory|RuntimeError|ValueError|Exception|FloatingPoint|IndexError|KeyError"
)


class SkippedBatch(NamedTuple):
    """A place where a process may leave out a batch alone."""

    node: ast.AST
    why: ast.AST | None
    """The condition; None for an exception that is caught"""
    then: ast.AST
    """The call behind it that the other processes wait in"""


def skipped_batches(module: Module) -> Iterator[SkippedBatch]:
    """The places where one process may leave out a batch; none where nothing wraps a model for
    several.
    """
    text = "\n".join(part.text for part in module.self_and_files_run_together)
    if not ENGINE_SIGNS.search(text) or not OWN_ROWS.search(text):
        return
    for loop in module.nodes(ast.For):
        if not _do_processes_agree_before_backward(loop):
            yield from _skips_of_loop(module, loop)
    for function in module.nodes(*FUNCTIONS):
        if isinstance(function, FUNCTIONS) and not _do_processes_agree_before_backward(function):
            yield from _skips_by_return_of_step(module, function)


def _do_processes_agree_before_backward(scope: ast.AST) -> bool:
    """Do processes agree on something in a loop or function, before its backward pass?"""
    first = min((call.lineno for call in _method_calls_in(scope, BACKWARD)), default=0)
    return any(
        isinstance(node, ast.Call)
        and AGREEMENT.search(f"{ast.unparse(node.func)}(")
        and (not first or node.lineno <= first)
        for node in ast.walk(scope)
    )


def _method_calls_in(scope: ast.AST, names: frozenset[str]) -> Iterator[ast.Call]:
    """The calls of methods with these names in a loop or function."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in names:
                yield node


def _skips_of_loop(module: Module, loop: Loop) -> Iterator[SkippedBatch]:
    """The skipped batches of a loop over batches: by `continue` before the backward pass, and by
    errors of a step that are swallowed.
    """
    for node in ast.walk(loop):
        if isinstance(node, ast.Continue) and _directly_enclosing_loop(module, node) is loop:
            yield from _skip_by_continue(module, loop, node)
        elif isinstance(node, ast.Try) and _directly_enclosing_loop(module, node) is loop:
            yield from _skip_by_swallowed_error(loop, node)


def _skip_by_continue(module: Module, loop: Loop, node: ast.Continue) -> Iterator[SkippedBatch]:
    """The skip by one `continue`, if its condition is about this process's batch."""
    if any(isinstance(around, ast.ExceptHandler) for around in _nodes_around(module, node, loop)):
        return
    then = _next_call_waiting_for_all_processes(loop, node.lineno)
    test = _process_local_test(module, loop, _tests_around(module, node, loop), _batch_names(loop))
    if then is not None and test is not None:
        yield SkippedBatch(node, test, then)


def _skip_by_swallowed_error(loop: Loop, node: ast.Try) -> Iterator[SkippedBatch]:
    """The skip by an error of a step that is caught, after which the loop continues."""
    block = ast.Module(body=node.body, type_ignores=[])
    backward = next(_method_calls_in(block, BACKWARD), None)
    behind = _next_call_waiting_for_all_processes(loop, node.end_lineno or node.lineno)
    for handler in node.handlers:
        caught = "Exception" if handler.type is None else ast.unparse(handler.type)
        if not SWALLOWED.search(caught) or _certainly_ends_loop(handler):
            continue
        goes_on = any(isinstance(part, ast.Continue) for part in ast.walk(handler))
        then = (
            backward
            if backward is not None
            else behind
            if goes_on and _computes_loss(block)
            else None
        )
        if then is not None:
            yield SkippedBatch(handler, None, then)


def _computes_loss(block: ast.AST) -> bool:
    """Does a block compute a loss?"""
    return any(
        isinstance(node, ast.Assign) and "loss" in ast.unparse(node.targets[0]).lower()
        for node in ast.walk(block)
    )


def _certainly_ends_loop(handler: ast.ExceptHandler) -> bool:
    """Does a handler surely end the process or the loop: a `raise`, an exit or a `break`, and no
    `continue` before?
    """
    if any(isinstance(part, ast.Continue) for part in ast.walk(handler)):
        return False
    return any(
        isinstance(statement, ast.Raise | ast.Break | ast.Return)
        or (
            isinstance(statement, ast.Expr)
            and isinstance(statement.value, ast.Call)
            and ast.unparse(statement.value.func) in ENDS
        )
        for statement in handler.body
    )


def _skips_by_return_of_step(
    module: Module, function: ast.FunctionDef | ast.AsyncFunctionDef
) -> Iterator[SkippedBatch]:
    """The skipped batches of a function that makes one step: by `return` before the backward pass."""
    arguments = {one.arg for one in (*function.args.args, *function.args.kwonlyargs)}
    batches = {name for name in arguments if BATCH_NAME.search(name)}
    if not batches:
        return
    for node in ast.walk(function):
        if not isinstance(node, ast.Return) or _directly_enclosing_loop(module, node) is not None:
            continue
        then = next(
            (call for call in _method_calls_in(function, BACKWARD) if call.lineno > node.lineno),
            None,
        )
        test = _process_local_test(module, function, _tests_around(module, node, function), batches)
        if then is not None and test is not None:
            yield SkippedBatch(node, test, then)


def _directly_enclosing_loop(module: Module, node: ast.AST) -> ast.AST | None:
    """The loop that a statement is directly in, within its function."""
    for around in module.parents(node):
        if isinstance(around, ast.For | ast.AsyncFor | ast.While):
            return around
        if isinstance(around, (*FUNCTIONS, ast.Lambda)):
            return None
    return None


def _nodes_around(module: Module, node: ast.AST, end: ast.AST) -> Iterator[ast.AST]:
    """The nodes around a node, up to a loop or function."""
    for around in module.parents(node):
        if around is end:
            return
        yield around


def _tests_around(module: Module, node: ast.AST, end: ast.AST) -> list[ast.expr]:
    """The conditions around a statement, up to its loop or function."""
    return [
        around.test for around in _nodes_around(module, node, end) if isinstance(around, ast.If)
    ]


def _next_call_waiting_for_all_processes(loop: Loop, line: int) -> ast.Call | None:
    """The first call behind a line of the loop that waits for all processes."""
    calls = [call for call in _method_calls_in(loop, BACKWARD | COLLECTIVES) if call.lineno > line]
    return min(calls, key=lambda call: call.lineno, default=None)


def _batch_names(loop: Loop) -> set[str]:
    """The names that a loop gives to its batch, without the number that `enumerate` counts."""
    target = loop.target
    is_counted = isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter.func).endswith(
        "enumerate"
    )
    if is_counted and isinstance(target, ast.Tuple) and len(target.elts) > 1:
        target = ast.Tuple(elts=target.elts[1:], ctx=ast.Store())
    names = {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}
    return {name for name in names if not STEP_NAME.fullmatch(name)}


def _process_local_test(
    module: Module, scope: ast.AST, tests: list[ast.expr], batches: set[str]
) -> ast.expr | None:
    """The condition that is computed from this process's batch or its loss, without any agreement
    of the processes; None otherwise.
    """
    assigned = _values_from_batch(scope, batches)
    for test in tests:
        text = ast.unparse(test)
        if (
            RANK_WORDS.search(text)
            or SIZE_OF_BATCH.search(text)
            or _is_same_on_all_processes(module, test)
        ):
            return None
    return next(
        (
            test
            for test in tests
            if assigned & {n.id for n in ast.walk(test) if isinstance(n, ast.Name)}
        ),
        None,
    )


def _values_from_batch(scope: ast.AST, batches: set[str]) -> set[str]:
    """The names of a loop or function that are computed from its batch, one assignment after
    another.
    """
    known = set(batches)
    for node in sorted(
        (one for one in ast.walk(scope) if isinstance(one, ast.Assign)), key=lambda one: one.lineno
    ):
        read = {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)}
        if read & known:
            known |= {
                part.id
                for target in node.targets
                for part in ast.walk(target)
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
            }
    return known


def _is_same_on_all_processes(module: Module, test: ast.expr) -> bool:
    """Is a condition, or a function of the project that it calls, the same on all processes?"""
    for node in backward_slice(module, test):
        if not isinstance(node, ast.Call):
            continue
        if AGREEMENT.search(f"{ast.unparse(node.func)}("):
            return True
        name = ast.unparse(node.func).rpartition(".")[2]
        if any(AGREEMENT.search(text) for text in _code_of_functions_named(module, name)):
            return True
    return False


def _code_of_functions_named(module: Module, name: str) -> Iterator[str]:
    """The code of the project's functions of a name."""
    for part in module.self_and_files_run_together:
        for function in part.nodes(ast.FunctionDef):
            if function.name == name:
                yield ast.unparse(function)
