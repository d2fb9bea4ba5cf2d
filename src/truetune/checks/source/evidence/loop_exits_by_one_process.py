"""Finds `break`, `return` and `continue` by which one process leaves a training loop alone, while
the others continue and wait for it.

How it works: a `break`, `return` or `continue` of a training loop is judged by what its condition
is computed from (`backward_slice`): its rank, rows that are dealt out to this process, its own
clock, or an exception that it alone may meet. It is no exit of one process where the condition
comes out of a collective call, or where what it is computed from goes through one.

The trade-off: agreement is looked for by the names in the condition, whatever their scope. So an
exit that agrees is never told; one whose names also go through a collective call for another reason
is missed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from truetune.cached_for_one_call import cached_for_one_call
from truetune.checks.source.evidence.multi_process_loops import (
    FUNCTIONS,
    LOOPS,
    mentions_process,
    models_wrapped_by_own_loops,
)
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.checks.source.evidence.one_process_conditions import is_one_process_test
from truetune.checks.source.evidence.process_counts import command_starting_several_processes
from truetune.parsing.input_limits import SETTINGS, InputLimitError
from truetune.parsing.read_files_within_limits import read_bytes_within_limit
from truetune.settings.stacks.find_who_reads_config_or_starts_script import COUNT_IN_CONFIG
from truetune.source.parsed_source_file import Module

AGREEING_CALL = re.compile(
    r"all_?reduce|broadcast|all_?gather|gather|dist\.reduce|accelerator\.reduce|fabric\.reduce|barrier|trigger"
    r"|sync(?!hronize)|agree|across|any_rank|all_ranks|over_ranks",
    re.I,
)
"""Names of calls by which processes agree on what they do"""
LETS_LEAVE = re.compile(r"monitored_barrier|\bJoin\(|\.join\(\)")
"""Signs that a wrapper lets one process leave"""
SHARDED_MODELS = ("torch.*.FullyShardedDataParallel", "torch.*.fully_shard", "deepspeed.initialize")
DEALING_CALLS = (
    "torch.*.DistributedSampler",
    "datasets.distributed.split_dataset_by_node",
    "deepspeed.initialize",
)
"""What gives each process rows of its own"""
PREPARING_METHODS = frozenset(("prepare", "prepare_data_loader", "setup_dataloaders"))
"""Of accelerate and Fabric: they give back a loader of this process's rows"""
CLOCKS = ("time.time", "time.monotonic", "time.perf_counter", "datetime.datetime.now")
# RuntimeError is what CUDA's errors were before torch 2; a bare `except` catches them too.
CATCHES_A_BATCH = re.compile(r"OutOfMemoryError|RuntimeError|AcceleratorError|\bException\b")
LEAVES = (ast.Raise, ast.Return)
LEAVING = (ast.Break, ast.Continue, ast.Return, ast.Raise)
EXITS = re.compile(r"\b(?:sys\.exit|os\._exit|exit|abort|destroy_process_group)\(")
MAX_CONFIGS = 20
"""Files beside a script in which processes may be counted"""
DEPTH = 2
"""Functions of the project that are opened for a backward pass"""

OWN_RANK = "under a condition that only its rank meets"
OWN_ROWS = "because of its own rows"
OWN_CLOCK = "by its own clock"
OWN_EXCEPTION = "after an exception that only it may meet"


class LoopExit(NamedTuple):
    """A `break`, `return` or `continue` of a training loop that each process takes by itself."""

    node: ast.AST
    test: ast.AST
    """The condition that each process computes by itself, or the exception that it catches"""
    cause: str
    is_certain: bool
    """Is it certain to run as several processes, and by figures that differ?"""


def multi_process_model_preparations(module: Module) -> Iterator[ast.AST]:
    """The calls that wrap, shard or prepare a model so that a hand-written loop runs as several
    processes.
    """
    yield from (call.node for call in models_wrapped_by_own_loops(module))
    yield from (call.node for call in module.calls(*SHARDED_MODELS))
    for call in module.methods("prepare", "setup"):
        if call.receiver is not None and _is_accelerator_or_fabric(module, call.receiver):
            yield call.node


def loop_exits_by_one_process(module: Module) -> Iterator[LoopExit]:
    """The places where a process may leave a loop of training alone."""
    if not any(True for _ in multi_process_model_preparations(module)):
        return
    if any(LETS_LEAVE.search(part.text) for part in module.self_and_files_run_together):
        return
    yield from _exits_under_process_dependent_condition(module)
    for handler in module.nodes(ast.ExceptHandler):
        if _does_exception_skip_backward(module, handler):
            yield LoopExit(handler, handler.type or handler, OWN_EXCEPTION, False)


def _exits_under_process_dependent_condition(module: Module) -> Iterator[LoopExit]:
    """The `break`, `continue` and `return` under a condition that may differ between processes."""
    starts_several = _surely_runs_several_processes(module)
    kinds: tuple[type[ast.stmt], ...] = (ast.Break, ast.Continue, ast.Return)
    for kind in kinds:
        for node in module.nodes(kind):
            found = _rank_condition_of_loop_exit(
                module, node
            ) or _process_local_condition_and_reason(module, node)
            if found is not None:
                test, cause = found
                is_certain = starts_several and cause in (OWN_RANK, OWN_ROWS)
                yield LoopExit(node, test, cause, is_certain)


def _is_accelerator_or_fabric(module: Module, receiver: ast.expr) -> bool:
    """Is it an Accelerator, or Lightning's Fabric?"""
    if "accelerator" in module.flow.types(receiver):
        return True
    call = module.flow.producing_call(receiver)
    return call is not None and call.named("*.Fabric")


def _surely_runs_several_processes(module: Module) -> bool:
    """Is the script certain to run as several processes: by its code, a command, or a configuration
    beside it?
    """
    if any(True for _ in models_wrapped_by_own_loops(module)):
        return True
    return command_starting_several_processes(
        module
    ) is not None or _accelerate_config_starts_several(str(Path(module.path).parent))


@cached_for_one_call
def _accelerate_config_starts_several(folder: str) -> bool:
    """Does a configuration of accelerate in the folder start several processes?"""
    for path in islice(sorted(Path(folder).glob("*.y*ml")), MAX_CONFIGS):
        try:
            count = COUNT_IN_CONFIG.search(
                read_bytes_within_limit(path, SETTINGS).decode("utf-8", "replace")
            )
        except (OSError, InputLimitError):
            continue
        if count is not None and int(count[1]) > 1:
            return True
    return False


def _process_local_condition_and_reason(
    module: Module, node: ast.stmt
) -> tuple[ast.expr, str] | None:
    """The condition of this process alone under which a training loop is left, and why it is; None
    where there is none."""
    around, loop = _conditions_and_loop_around(module, node)
    if loop is None or not _backward_is_left_out(module, loop, node):
        return None
    runners = _names_of_accelerator_or_engine_given_loss(module, loop)
    tests = [
        part.test for part in around if not _condition_reads_only_names(module, part.test, runners)
    ]
    names = {n.id for test in tests for n in ast.walk(test) if isinstance(n, ast.Name)}
    tests += _conditions_of_counters(module, loop, names)
    tests += _arguments_of_objects_in_condition(loop, names - runners)
    for test in tests:
        parts = list(backward_slice(module, test))
        cause = _cause_of_difference_between_processes(module, parts)
        if cause and not _do_processes_agree_on_condition(module, parts):
            return test, cause
    return None


def _rank_condition_of_loop_exit(module: Module, node: ast.stmt) -> tuple[ast.expr, str] | None:
    """The condition on the rank under which a training loop is left, or under which a flag is set
    that leaves it.
    """
    around, loop = _conditions_and_loop_around(module, node)
    if loop is None or not _backward_is_left_out(module, loop, node):
        return None
    guard = _rank_test_around(module, node, loop)
    if guard is not None:
        return guard, OWN_RANK
    parts = [part for one in around for part in ast.walk(one.test)]
    guard = _rank_test_raising_flags(module, loop, parts)
    return (
        None
        if guard is None or _do_processes_agree_on_condition(module, parts)
        else (guard, OWN_RANK)
    )


def _rank_test_raising_flags(
    module: Module, loop: ast.AST, parts: list[ast.AST]
) -> ast.expr | None:
    """The condition under which one process alone raises the flags that a condition reads; None
    where others may.
    """
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    raised = [
        part
        for part in ast.walk(loop)
        if names & _names_counted_or_set(part) and _sets_name_to_true(part)
    ]
    guards = [_rank_test_around(module, part, loop) for part in raised]
    # A flag that every process may raise as well is not the decision of one.
    return guards[0] if guards and None not in guards else None


def _rank_test_around(module: Module, node: ast.AST, loop: ast.AST) -> ast.expr | None:
    """The condition in a loop that lets only one process come to a statement; None where the others
    leave as well.
    """
    inner = node
    for parent in module.parents(node):
        if parent is loop:
            return None
        if isinstance(parent, ast.If) and inner in parent.body:
            others_leave = any(
                isinstance(part, LEAVING) for other in parent.orelse for part in ast.walk(other)
            )
            if is_one_process_test(module, parent.test):
                return None if others_leave else parent.test
        inner = parent
    return None


def _sets_name_to_true(part: ast.AST) -> bool:
    """Does a statement set a name to something true?"""
    if not isinstance(part, ast.Assign) or not isinstance(part.value, ast.Constant):
        return False
    return bool(part.value.value)


def _cause_of_difference_between_processes(module: Module, parts: list[ast.AST]) -> str:
    """Why a condition may differ between processes; empty where it does not."""
    if _depends_on_rows_of_this_process(module, parts):
        return OWN_ROWS
    calls = (module.flow.call(part) for part in parts if isinstance(part, ast.Call))
    return OWN_CLOCK if any(call.named(*CLOCKS) for call in calls) else ""


def _conditions_and_loop_around(
    module: Module, node: ast.AST
) -> tuple[list[ast.If], ast.AST | None]:
    """The conditions around a statement, up to the loop that it leaves or begins again."""
    conditions: list[ast.If] = []
    for parent in module.parents(node):
        if isinstance(parent, ast.If):
            conditions.append(parent)
        elif isinstance(parent, LOOPS):
            return conditions, parent
        elif isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return conditions, None
    return conditions, None


def _backward_is_left_out(module: Module, loop: ast.AST, node: ast.stmt) -> bool:
    """Does the loop make a backward pass that is left out by this statement?

    A `continue` leaves out only what stands behind it.
    """
    behind = node.lineno if isinstance(node, ast.Continue) else 0
    return any(line > behind for line in _backward_lines(module, loop))


def _backward_lines(module: Module, block: ast.AST, depth: int = DEPTH) -> Iterator[int]:
    """The lines of a block where a backward pass is made: by itself, or in a function of the
    project that it calls.
    """
    for part in ast.walk(block):
        if isinstance(part, ast.Attribute) and part.attr == "backward":
            yield part.lineno
        elif isinstance(part, ast.Call) and depth:
            function = module.flow.function_called(part.func)
            if isinstance(function, FUNCTIONS) and any(
                True for _ in _backward_lines(module, function, depth - 1)
            ):
                yield part.lineno


def _conditions_of_counters(module: Module, loop: ast.AST, names: set[str]) -> list[ast.expr]:
    """The conditions under which the loop counts, or sets a flag: `if loss < best: bad = 0` ...
    `else: bad += 1`.
    """
    return [
        up.test
        for part in ast.walk(loop)
        if names & _names_counted_or_set(part)
        for up in module.parents(part)
        if isinstance(up, ast.If)
    ]


def _names_counted_or_set(part: ast.AST) -> set[str]:
    """The names that a statement counts, or sets to a constant."""
    if isinstance(part, ast.AugAssign):
        targets: list[ast.expr] = [part.target]
    elif isinstance(part, ast.Assign) and isinstance(part.value, ast.Constant):
        targets = part.targets
    else:
        return set()
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _arguments_of_objects_in_condition(loop: ast.AST, names: set[str]) -> list[ast.expr]:
    """The expressions that the loop gives to objects which the condition asks: `stopper(val); if
    stopper.early_stop: break`.
    """
    return [
        argument
        for owner, call in _calls_of_names(loop)
        if owner.id in names
        for argument in call.args
    ]


def _calls_of_names(loop: ast.AST) -> Iterator[tuple[ast.Name, ast.Call]]:
    """The calls in a loop of a name, or of a method of it, each with the name."""
    for part in ast.walk(loop):
        if isinstance(part, ast.Call):
            owner = part.func.value if isinstance(part.func, ast.Attribute) else part.func
            if isinstance(owner, ast.Name):
                yield owner, part


def _names_of_accelerator_or_engine_given_loss(module: Module, loop: ast.AST) -> set[str]:
    """The names of the accelerator, Fabric or engine that is given the loss.

    What runs the loop in all processes counts the same steps in each: `accelerator.sync_gradients`,
    `engine.global_steps`. The loss that it is given decides nothing.
    """
    return {
        owner.id
        for owner, call in _calls_of_names(loop)
        if (isinstance(call.func, ast.Attribute) and call.func.attr == "backward" and call.args)
        or _is_accelerator_or_fabric(module, owner)
    }


def _condition_reads_only_names(module: Module, test: ast.expr, names: set[str]) -> bool:
    """Does a condition ask these objects, and nothing else but constants?"""
    asked = [part for part in ast.walk(test) if isinstance(part, ast.Name)]
    others = [
        part
        for part in asked
        if part.id not in names and not isinstance(module.flow.value(part), int | float | str)
    ]
    return len(others) < len(asked) and not others


def _depends_on_rows_of_this_process(module: Module, parts: list[ast.AST]) -> bool:
    """Is a condition computed from rows that are dealt out to this process, or from what the model
    gives for them?
    """
    if not any(_reads_rows_of_this_process(module, part) for part in parts):
        return False
    calls = [part for part in parts if isinstance(part, ast.Call)]
    if any(
        "model" in module.flow.types(part.func) or _calls_wrapped_model(module, part)
        for part in calls
    ):
        return True
    # Without the model, only what the rows hold counts: the number of the batch is the same on each process.
    return any(part in _reads_of_batches(module) for part in parts)


def _reads_rows_of_this_process(module: Module, part: ast.AST) -> bool:
    """Does a part of a computation stand for rows of this process alone?"""
    if isinstance(part, ast.Name):
        return any(
            isinstance(origin.node, ast.Call)
            and is_accelerator_or_fabric_prepare_call(module, origin.node)
            for origin in module.flow.origins(part)
            if "loader" in module.flow.types(part)
        )
    if isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Slice):
        return mentions_process(module, part.slice)
    if not isinstance(part, ast.Call):
        return False
    call = module.flow.call(part)
    if call.method == "shard":
        return any(mentions_process(module, node) for node in _all_arguments(part))
    return call.named(*DEALING_CALLS)


def is_accelerator_or_fabric_prepare_call(module: Module, node: ast.Call) -> bool:
    """Is it `accelerator.prepare(...)` or its like?"""
    call = module.flow.call(node)
    return (
        call.method in PREPARING_METHODS
        and call.receiver is not None
        and _is_accelerator_or_fabric(module, call.receiver)
    )


def _all_arguments(call: ast.Call) -> list[ast.expr]:
    """What a call is given."""
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _reads_of_batches(module: Module) -> set[ast.AST]:
    """The reads of their batch in loops over loaders.

    Not of the number in front of it, nor names of other functions.
    """
    reads: set[ast.AST] = set()
    for loop in module.nodes(ast.For):
        if not any("loader" in module.flow.types(part) for part in _expressions_within(loop.iter)):
            continue
        names = {name.id for name in _names_within(_batch_target(module, loop))}
        reads.update(name for name in _names_within(loop) if name.id in names)
    return reads


def _batch_target(module: Module, loop: ast.For) -> ast.expr:
    """The target of a loop that gets the batch, without the number that `enumerate` counts."""
    target = loop.target
    numbers = isinstance(loop.iter, ast.Call) and module.text_of(loop.iter.func) == "enumerate"
    if numbers and isinstance(target, ast.Tuple) and len(target.elts) > 1:
        return target.elts[1]
    return target


def _names_within(node: ast.AST) -> Iterator[ast.Name]:
    """The names inside of a node."""
    return (part for part in ast.walk(node) if isinstance(part, ast.Name))


def _expressions_within(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions in one."""
    return (part for part in ast.walk(node) if isinstance(part, ast.expr))


def _calls_wrapped_model(module: Module, call: ast.Call) -> bool:
    """Is it a call of a model that is wrapped for several processes?"""
    return module.flow.call(call).named("torch.*.DistributedDataParallel", *SHARDED_MODELS)


def _do_processes_agree_on_condition(module: Module, parts: list[ast.AST]) -> bool:
    """Does a condition come out of a collective call, or is what it is computed from given to one?"""
    names = {
        part.id
        for part in parts
        if isinstance(part, ast.Name) and not module.flow.types(part) & {"model", "loader"}
    }
    slice_calls = {id(part) for part in parts if isinstance(part, ast.Call)}
    for linked in module.self_and_files_run_together:
        for call in linked.nodes(ast.Call):
            if not AGREEING_CALL.search(linked.text_of(call.func)):
                continue
            if id(call) in slice_calls or _names_in_arguments(call) & names:
                return True
    return False


def _names_in_arguments(call: ast.Call) -> set[str]:
    """The names in the arguments of a call."""
    return {
        part.id
        for argument in _all_arguments(call)
        for part in ast.walk(argument)
        if isinstance(part, ast.Name)
    }


def _does_exception_skip_backward(module: Module, handler: ast.ExceptHandler) -> bool:
    """Does an exception in a training loop, such as an out-of-memory error, leave out a backward
    pass of this process alone?"""
    caught = "Exception" if handler.type is None else ast.unparse(handler.type)
    attempt = module.scopes.parent.get(handler)
    if not CATCHES_A_BATCH.search(caught) or not isinstance(attempt, ast.Try):
        return False
    if any(
        isinstance(part, LEAVES) for part in handler.body
    ) or _handler_ends_process_or_tells_others(module, handler):
        return False
    _, loop = _conditions_and_loop_around(module, handler)
    block = ast.Module(body=attempt.body, type_ignores=[])
    return loop is not None and any(True for _ in _backward_lines(module, block))


def _handler_ends_process_or_tells_others(module: Module, handler: ast.ExceptHandler) -> bool:
    """Does the handler end the process, or tell the others?"""
    text = "\n".join(module.text_of(part) for part in handler.body)
    return EXITS.search(text) is not None or AGREEING_CALL.search(text) is not None
