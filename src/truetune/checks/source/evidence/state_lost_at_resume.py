"""Finds state of a training that a script does not restore when it resumes a run.

How it works: a script restores the state of its optimizer, so it resumes runs. Then three more things must come from
the checkpoint: the schedule, which begins its warm-up again where it is made again; the best metric so far, without
which the first evaluation replaces the best checkpoint; and the number of the epoch, plus one where the checkpoint is
written at the end of an epoch.

The trade-off: any other way to set one of them (`last_epoch=`, steps of the schedule before the loop, a rate that is
set by hand, a name that the resume sets) silences the rule, whether it is right or not.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from truetune.checks.source.evidence.backward_and_optimizer_step_calls import is_backward_call
from truetune.checks.source.evidence.loops_resumed_at_first_batch import is_set_by_resume
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.source.call_with_resolved_names_and_arguments import Call, last_name_of_called
from truetune.source.parsed_source_file import Module
from truetune.source.shorten_qualified_names import spelling_of_variable, variables_set_by_target

SCHEDULES = (
    "transformers.get_*_with_warmup*",
    "transformers.get_scheduler",
    "transformers.get_cosine_*",
    "transformers.get_polynomial_*",
    "transformers.get_linear_*",
    "torch.optim.lr_scheduler.LambdaLR",
    "torch.optim.lr_scheduler.OneCycleLR",
    "torch.optim.lr_scheduler.CosineAnnealing*",
    "torch.optim.lr_scheduler.LinearLR",
    "torch.optim.lr_scheduler.SequentialLR",
    "torch.optim.lr_scheduler.StepLR",
    "torch.optim.lr_scheduler.MultiStepLR",
    "torch.optim.lr_scheduler.ExponentialLR",
    "torch.optim.lr_scheduler.PolynomialLR",
)
RESTORES_ALL = ("load_state", "load_checkpoint", "fit")
"""Methods of accelerate, DeepSpeed, Fabric and Lightning that restore the schedule too"""
SCHEDULE_NAME = re.compile(r"sched", re.I)
SETS_RATE = re.compile(r"\[['\"]lr['\"]\]\s*=|last_epoch|_step_count|num_updates")
"""In files: what sets the learning rate, or the place in a schedule, by hand"""
BEST_NAME = re.compile(r"(^|_)(best|min|max|lowest|highest)(_|$)", re.I)
SAVES = re.compile(r"^save|_save$|^save_\w+|checkpoint$", re.I)
LOOPS = (ast.For, ast.While)
Part = Literal["schedule", "best", "epoch"]


class LostState(NamedTuple):
    """A part of a run that a resume does not restore."""

    part: Part
    name: str
    place: ast.AST
    """What begins again: the schedule, the comparison with the best, the number of the epoch"""
    restored: ast.AST
    """What the resume does restore"""


def state_lost_at_resume(module: Module) -> Iterator[LostState]:
    """The parts of a run that a file does not restore, each once.

    Args:
        module: A file that is judged.

    Yields:
        Schedules, best metrics and numbers of epochs.
    """
    restores = [*restores_of_optimizers(module)]
    if not restores or any(module.methods(*RESTORES_ALL)):
        return
    yield from _schedules_not_restored_on_resume(module, restores[0])
    yield from _best_metrics_reset_on_resume(module, restores[0])
    yield from _epochs_trained_again(module, restores[0])


def restores_of_optimizers(module: Module) -> Iterator[ast.Call]:
    """The calls that restore the state of an optimizer from a file."""
    for call in module.methods("load_state_dict"):
        owner = call.receiver
        if owner is None or SCHEDULE_NAME.search(ast.unparse(owner)):
            continue
        is_optimizer = "optimizer" in module.flow.types(owner)
        if is_optimizer or re.search(r"optim", ast.unparse(owner), re.I):
            yield call.node


def _schedules_not_restored_on_resume(module: Module, restored: ast.Call) -> Iterator[LostState]:
    """The schedules that the training steps and nothing restores."""
    if SETS_RATE.search(module.text) or _restores_schedule(module):
        return
    for call in module.calls(*SCHEDULES):
        kept = next(module.parents(call.node), None)
        target = kept.targets[0] if isinstance(kept, ast.Assign) else None
        name = spelling_of_variable(target) if target is not None else None
        if name is None or not _is_only_stepped_in_training(module, name):
            continue
        if not _depends_on_resume(module, call):
            yield LostState("schedule", name, call.node, restored)


def _restores_schedule(module: Module) -> bool:
    """Does a file load the state of something that may be a schedule?"""
    for part in module.self_and_files_run_together:
        for call in part.methods("load_state_dict"):
            if call.receiver is not None and SCHEDULE_NAME.search(ast.unparse(call.receiver)):
                return True
        for loop in part.nodes(ast.For):
            # `for key, item in states.items(): item.load_state_dict(saved[key])` restores everything.
            calls = (one for one in ast.walk(loop) if isinstance(one, ast.Call))
            if any(last_name_of_called(one) == "load_state_dict" for one in calls):
                return True
    return False


def _is_only_stepped_in_training(module: Module, name: str) -> bool:
    """Is a schedule stepped, and only in a loop, or a function, that makes backward passes?"""
    steps = [
        call
        for call in module.methods("step")
        if call.receiver is not None and spelling_of_variable(call.receiver) == name
    ]
    for call in steps:
        around = [
            one for one in module.parents(call.node) if isinstance(one, (*LOOPS, ast.FunctionDef))
        ]
        if not any(is_backward_call(part) for one in around for part in ast.walk(one)):
            return False
    return bool(steps)


def _depends_on_resume(module: Module, schedule: Call) -> bool:
    """Is a schedule made of a number that the resume sets?"""
    for part in backward_slice(module, schedule.node):
        statement = module.statement(part) if isinstance(part, ast.expr) else part
        if isinstance(statement, ast.Assign) and statement is not module.statement(schedule.node):
            if is_set_by_resume(module, statement) and not isinstance(
                statement.value, ast.Constant
            ):
                return True
    return any(isinstance(part, ast.Lambda) for part in ast.walk(schedule.node)) and bool(
        re.search(r"start|resume|offset|global_step|initial", ast.unparse(schedule.node))
    )


def _best_metrics_reset_on_resume(module: Module, restored: ast.Call) -> Iterator[LostState]:
    """The best metrics by which a checkpoint is kept, and which are constants after a resume."""
    for test in module.nodes(ast.If):
        best = _best_metric_replaced_at_save(test)
        if best is None or not _sets_counter_by_resume(module):
            continue
        values = _values_set_outside(module, best, test)
        if values and all(map(_is_initial_value_of_best_metric, values)):
            yield LostState("best", best, test.test, restored)


def _values_set_outside(module: Module, variable: str, test: ast.If) -> list[ast.expr]:
    """The values that a file gives a variable anywhere but inside this test."""
    return [
        node.value
        for node in module.nodes(ast.Assign)
        if variable in {name for target in node.targets for name in variables_set_by_target(target)}
        and test not in module.parents(node)
    ]


def _best_metric_replaced_at_save(test: ast.If) -> str | None:
    """The best metric that a comparison replaces beside a save."""
    if not _holds_a_save(test.body):
        return None
    compared = _variables_compared(test.test)
    for statement in test.body:
        if isinstance(statement, ast.Assign):
            name = spelling_of_variable(statement.targets[0])
            if name is not None and name in compared:
                if BEST_NAME.search(name.rpartition(".")[2]):
                    return name
    return None


def _holds_a_save(statements: Sequence[ast.stmt]) -> bool:
    """Does one of the statements, or what is inside it, save?"""
    return any(
        isinstance(part, ast.Call) and SAVES.search(last_name_of_called(part))
        for statement in statements
        for part in ast.walk(statement)
    )


def _variables_compared(condition: ast.expr) -> set[str | None]:
    """The variables on the sides of a condition's comparisons, as they are spelled."""
    return {
        spelling_of_variable(side)
        for part in ast.walk(condition)
        if isinstance(part, ast.Compare)
        for side in (part.left, *part.comparators)
    }


def _sets_counter_by_resume(module: Module) -> bool:
    """Does the file take the number of its epoch or step from a checkpoint: is the run continued?"""
    return any(
        re.search(r"epoch|step|iter", ast.unparse(node.targets[0]), re.I)
        and not isinstance(node.value, ast.Constant)
        and _does_value_read_an_entry(node.value)
        for node in module.nodes(ast.Assign)
        if is_set_by_resume(module, node)
    )


def _does_value_read_an_entry(value: ast.expr) -> bool:
    """Is an entry read in a value, by an index, `get` or `pop`: `saved["epoch"] + 1`?"""
    return any(
        isinstance(part, ast.Subscript)
        or (isinstance(part, ast.Call) and last_name_of_called(part) in ("get", "pop"))
        for part in ast.walk(value)
    )


def _is_initial_value_of_best_metric(value: ast.expr) -> bool:
    """Is a value the one that a best metric begins with: a number, infinity, None, or a tuple of such?"""
    if isinstance(value, ast.Tuple):
        return all(map(_is_initial_value_of_best_metric, value.elts))
    names = {part.id for part in ast.walk(value) if isinstance(part, ast.Name)}
    calls = [part for part in ast.walk(value) if isinstance(part, ast.Call)]
    return names <= {"float", "math", "np", "numpy", "torch", "sys"} and all(
        last_name_of_called(call) == "float" for call in calls
    )


def _epochs_trained_again(module: Module, restored: ast.Call) -> Iterator[LostState]:
    """The loops over epochs that begin at the epoch which the checkpoint was written after."""
    for epochs in module.nodes(ast.For):
        first = _start_name_of_epoch_range(epochs)
        if first is None or not isinstance(epochs.target, ast.Name):
            continue
        key = _key_saved_after_epoch(module, epochs)
        for node in module.nodes(ast.Assign) if key is not None else ():
            is_first = first in {
                name for one in node.targets for name in variables_set_by_target(one)
            }
            if (
                is_first
                and _takes_key_unchanged(node.value, key)
                and is_set_by_resume(module, node)
            ):
                yield LostState("epoch", first, node, restored)


def _start_name_of_epoch_range(epochs: ast.For) -> str | None:
    """The name of the first number of `range(first, last)`."""
    call = epochs.iter
    while (
        isinstance(call, ast.Call) and last_name_of_called(call) in ("tqdm", "trange") and call.args
    ):
        call = call.args[0]
    if isinstance(call, ast.Call) and last_name_of_called(call) == "range" and len(call.args) > 1:
        return spelling_of_variable(call.args[0])
    return None


def _key_saved_after_epoch(module: Module, epochs: ast.For) -> str | None:
    """The key under which the number of an epoch is saved when all of its batches are trained.

    None where a checkpoint is written between batches as well, or what is saved is not the plain number.
    """
    assert isinstance(epochs.target, ast.Name)
    inner = [one for one in epochs.body if isinstance(one, LOOPS)]
    trained = [one for one in inner if any(map(is_backward_call, ast.walk(one)))]
    saved = _dictionaries_with_name(module, epochs, epochs.target.id)
    if not trained or len(saved) != 1:
        return None
    key, entries = next(iter(saved.items()))
    is_in_inner_loop = any(one in module.parents(entries) for one in inner)
    is_after_training = entries.lineno > trained[-1].lineno
    return key if is_after_training and not is_in_inner_loop else None


def _dictionaries_with_name(module: Module, loop: ast.For, name: str) -> dict[str, ast.Dict]:
    """The key under which a dictionary inside a loop holds this name -> the dictionary."""
    return {
        str(key.value): entries
        for entries in module.nodes(ast.Dict)
        for key, value in zip(entries.keys, entries.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(value, ast.Name)
        if value.id == name and loop in module.parents(entries)
    }


def _takes_key_unchanged(value: ast.expr, key: str | None) -> bool:
    """Is a value the saved number itself: `saved["epoch"]`, `saved.get("epoch", 0)`?"""
    if isinstance(value, ast.Subscript):
        return isinstance(value.slice, ast.Constant) and value.slice.value == key
    if isinstance(value, ast.Call) and last_name_of_called(value) in ("get", "pop") and value.args:
        return isinstance(value.args[0], ast.Constant) and value.args[0].value == key
    return False
