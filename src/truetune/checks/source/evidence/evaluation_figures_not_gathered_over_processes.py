"""Finds evaluation figures that each of several processes computes over its own part of the rows,
without putting them together.

How it works: loops without gradients over a loader that deals rows out are evaluations in parts;
the figure is put together where any call of the files sums or gathers over processes. Lightning's
figures are read from the steps of a LightningModule, with the Trainer and the callbacks of the same
files.

The trade-off: one call that gathers anything excuses all evaluations of the files.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.backward_and_optimizer_step_calls import is_backward_call
from truetune.checks.source.evidence.does_lightning_start_several_processes import (
    is_in_lightning_module,
    lightning_trainer_or_fabric_calls,
    several_processes_argument,
)
from truetune.checks.source.evidence.loop_exits_by_one_process import (
    is_accelerator_or_fabric_prepare_call,
)
from truetune.checks.source.evidence.one_process_conditions import is_one_process_test
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
SAMPLERS = ("torch.*.DistributedSampler",)
PUTS_TOGETHER = re.compile(
    r"all_?reduce|all_?gather|\bgather|gather_|\.reduce\(|reduce_(?!on_)|dist\.reduce|torchmetrics|evaluate\.load"
    r"|distributed_concat|nested_gather|Trainer\(",
)
"""Signs that a figure is summed or gathered over processes, or that a trainer does so"""
WITHOUT_GRADIENTS = re.compile(r"no_grad|inference_mode|\.eval\(\)")
LOGS = re.compile(r"\bprint\(|\.log\(|\.info\(|add_scalar\(|log_metrics?\(")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
GATHERS = re.compile(r"all_gather|all_reduce|reduce\(")
CHOOSERS = ("ModelCheckpoint", "EarlyStopping")
VALIDATION_STEPS = frozenset(
    ("validation_step", "test_step", "on_validation_epoch_end", "validation_epoch_end")
)
# Chosen, not measured: a sum, its mean, its exponential and the dictionary that holds them.
MAX_COMPUTED = 4
"""Assignments in a row from what is added up to what is logged"""


class PartialEvaluation(NamedTuple):
    """A loop over rows of this process alone, without gradients."""

    loop: ast.For
    dealt: ast.AST
    """What deals the rows out"""
    logged: ast.AST | None
    """Where rank 0 logs a figure; None where figures are put together, or nothing is logged"""


class LoggedFigure(NamedTuple):
    """A figure that a LightningModule logs without reducing it."""

    call: Call
    name: str
    several: str
    """What says that there are several processes"""
    chooser: ast.AST | None
    """The callback that goes by it"""


def loops_evaluating_part_of_rows(module: Module) -> Iterator[PartialEvaluation]:
    """The loops of a file that evaluate a part of the rows."""
    loops = [loop for loop in module.nodes(ast.For) if _is_evaluation_loop(module, loop)]
    is_put_together = any(
        PUTS_TOGETHER.search(one.text) for one in module.self_and_files_run_together
    )
    for loop in loops:
        deals = _call_splitting_loop_rows_by_process(module, loop.iter)
        if deals is not None:
            logged = (
                None
                if is_put_together
                else _first_log_by_rank_zero(module, _names_computed_from_loop(module, loop))
            )
            yield PartialEvaluation(loop, deals, logged)


def _names_computed_from_loop(module: Module, loop: ast.For) -> frozenset[str]:
    """The names of what a loop adds up, and of what is computed from it, in its function and where
    that is called.
    """
    names = frozenset(_names_added_to(loop))
    around = module.function_around(loop)
    if around is None:
        return _with_computed_names(module.tree, names)
    names = _with_computed_names(around, names)
    homes = [
        (one, call)
        for one in module.self_and_files_run_together
        for call in one.flow.calls_of_function_or_class(around)
    ]
    for home, call in homes:
        parent = home.scopes.parent.get(call)
        if isinstance(parent, ast.Assign):
            names |= frozenset(_names_assigned(parent))
    for home in {home for home, _ in homes}:
        names = _with_computed_names(home.tree, names)
    return names | {around.name}


def _names_added_to(loop: ast.For) -> Iterator[str]:
    """The names that a loop adds to: `total += x`, `losses.append(x)`, `self.hits += x`."""
    for part in ast.walk(loop):
        if isinstance(part, ast.AugAssign):
            yield from _names_in(part.target)
        elif isinstance(part, ast.Attribute) and part.attr in ("append", "extend"):
            yield from _names_in(part.value)


def _names_in(node: ast.AST) -> Iterator[str]:
    """The names and attributes of an expression."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and part.id != "self":
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr


def _names_assigned(statement: ast.Assign) -> Iterator[str]:
    """The names that an assignment binds."""
    for target in statement.targets:
        yield from _names_in(target)


def _with_computed_names(block: ast.AST, names: frozenset[str]) -> frozenset[str]:
    """Names, with those that a block computes from them."""
    assigned = [part for part in ast.walk(block) if isinstance(part, ast.Assign)]
    for _ in range(MAX_COMPUTED):
        more = {
            name
            for statement in assigned
            if not names.isdisjoint(_names_in(statement.value))
            for name in _names_assigned(statement)
        }
        if more <= names:
            break
        names |= more
    return names


def _is_evaluation_loop(module: Module, loop: ast.For) -> bool:
    """Does a loop add up a figure of a model, without gradients?"""
    adds = any(True for _ in _names_added_to(loop))
    if not adds or any(map(is_backward_call, ast.walk(loop))):
        return False
    for parent in module.parents(loop):
        if isinstance(parent, FUNCTIONS):
            return WITHOUT_GRADIENTS.search(ast.unparse(parent)) is not None
        if isinstance(parent, ast.With) and WITHOUT_GRADIENTS.search(ast.unparse(parent.items[0])):
            return True
    return False


def _call_splitting_loop_rows_by_process(module: Module, iterated: ast.expr) -> ast.AST | None:
    """The call that gives each process its part of the rows that a loop iterates; None where none
    is seen.
    """
    while (
        isinstance(iterated, ast.Call)
        and iterated.args
        and not module.flow.types(iterated) & {"loader"}
    ):
        iterated = iterated.args[0]
    origins = module.flow.origins(iterated)
    calls = [origin.node for origin in origins if isinstance(origin.node, ast.Call)]
    if not calls or len(calls) < len(origins):
        return None
    nodes = [_as_call_splitting_rows_by_process(module, call) for call in calls]
    return nodes[0] if all(one is not None for one in nodes) else None


def _as_call_splitting_rows_by_process(module: Module, node: ast.Call) -> ast.AST | None:
    """The call by which rows are dealt to processes: `accelerator.prepare(...)`, or the sampler of
    a DataLoader; None for other calls.
    """
    if is_accelerator_or_fabric_prepare_call(module, node):
        return node
    call = module.flow.call(node)
    sampler = call.keywords.get("sampler") if call.named(*LOADERS) else None
    made = None if sampler is None else module.flow.producing_call(sampler)
    return made.node if made is not None and made.named(*SAMPLERS) else None


def _first_log_by_rank_zero(module: Module, figure: frozenset[str]) -> ast.AST | None:
    """The first place where rank 0 alone logs one of these names; None without one.

    Not where a loop writes answers to a file of its rank.
    """
    for one in module.self_and_files_run_together:
        for call in one.methods("print", "log"):
            if call.receiver is not None and "accelerator" in one.flow.types(call.receiver):
                if not figure.isdisjoint(_names_in(call.node)):
                    return call.node
        for test in one.nodes(ast.If):
            if not is_one_process_test(one, test.test):
                continue
            for statement in test.body:
                if LOGS.search(ast.unparse(statement)) and not figure.isdisjoint(
                    _names_in(statement)
                ):
                    return statement
    return None


def validation_log_calls(module: Module) -> Iterator[Call]:
    """The calls of `self.log` and `self.log_dict` in the validation of a LightningModule."""
    for call in module.methods("log", "log_dict"):
        if not isinstance(call.receiver, ast.Name) or call.receiver.id != "self":
            continue
        step = module.function_around(call.node)
        if step is not None and step.name in VALIDATION_STEPS:
            if is_in_lightning_module(module, step):
                yield call


def lightning_metrics_logged_without_reduction(module: Module) -> Iterator[LoggedFigure]:
    """The figures of a LightningModule that each of several processes logs by itself."""
    figures = [
        call for call in validation_log_calls(module) if _is_logged_without_reduction(module, call)
    ]
    several = _trainer_argument_for_several_devices(module) if figures else ""
    if not several:
        return
    choosers = dict(_names_monitored_by_callbacks(module))
    for call in figures:
        names = _logged_names_without_metric_objects(module, call)
        chosen = next((name for name in names if name in choosers), None)
        if names:
            yield LoggedFigure(call, chosen or names[0], several, choosers.get(chosen or ""))


def _logged_names_without_metric_objects(module: Module, call: Call) -> list[str]:
    """The names that a call logs, without those of metric objects, which reduce by themselves."""
    return [
        name
        for name, value in _logged_names_and_values(module, call)
        if not _is_torchmetrics_object(module, value)
    ]


def _is_logged_without_reduction(module: Module, call: Call) -> bool:
    """Is nothing said of the other processes: no `sync_dist`, no `rank_zero_only`, no gathering in
    the files?
    """
    if call.open or {"sync_dist", "rank_zero_only", "reduce_fx"} & call.keywords.keys():
        return False
    step = module.function_around(call.node)
    return step is not None and GATHERS.search(ast.unparse(step)) is None


def _trainer_argument_for_several_devices(module: Module) -> str:
    """What the one Trainer of the files says of several devices; empty where it says nothing, or
    there are more.
    """
    trainers = [
        (one, call)
        for one in module.self_and_files_run_together
        for call in lightning_trainer_or_fabric_calls(one)
    ]
    if len(trainers) != 1:
        return ""
    home, call = trainers[0]
    return several_processes_argument(home, call)


def _names_monitored_by_callbacks(module: Module) -> Iterator[tuple[str, ast.AST]]:
    """The figures that callbacks go by, each with its callback."""
    for one in module.self_and_files_run_together:
        for call in one.calls(*(f"*.{name}" for name in CHOOSERS)):
            name = one.flow.value(call.keywords.get("monitor"))
            if isinstance(name, str):
                yield name, call.node


def _logged_names_and_values(module: Module, call: Call) -> Iterator[tuple[str, ast.expr]]:
    """The names and values that a call logs: of `self.log("a", x)` and of `self.log_dict({"a":
    x})`.
    """
    dictionary_argument = call.argument(0, "name" if call.method == "log" else "dictionary")
    if dictionary_argument is None:
        return
    if call.method == "log":
        name, value = module.flow.value(dictionary_argument), call.argument(1, "value")
        if isinstance(name, str) and value is not None:
            yield name, value
        return
    entries, _ = module.flow.dict_entries_and_if_complete(dictionary_argument)
    yield from entries.items()


def _is_torchmetrics_object(module: Module, value: ast.expr) -> bool:
    """Is it a metric object, which reduces over processes by itself: `self.accuracy`,
    `self.accuracy.compute()`?
    """
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr != "compute":
            break
        value = value.func.value
    # A figure is computed in a local name or expression; an attribute of the module may be a metric.
    if isinstance(value, ast.Attribute):
        return isinstance(value.value, ast.Name) and value.value.id == "self"
    made = [one.node for one in module.flow.origins(value) if one.node is not value]
    return any(isinstance(one, ast.expr) and _is_torchmetrics_object(module, one) for one in made)
