"""Finds where a script chooses the best checkpoint, by which metric and in which direction, by a
symbolic run.

The trade-off: the direction of a metric is known by the words of its name alone (`val_loss`,
`eval_accuracy`); a hand-written loop counts where the test stands between the metric and a name
that is set to it, and a model is saved there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from truetune.checks.metric_direction_words import LOWER_IS_BETTER, words_with_known_direction
from truetune.checks.source.evidence.trainer_settings_given import (
    arguments_of_trainer,
    value_of_setting,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Frame, Trace
from truetune.source.symbolic_execution.values_of_run import Option, Result, Value

TRAINERS = ("transformers.*Trainer", "trl.*Trainer")
OF_LIGHTNING = tuple(
    f"{package}.{name}"
    for package in ("lightning.*", "pytorch_lightning.*")
    for name in ("ModelCheckpoint", "EarlyStopping")
)
SAVING_METHODS = ("save_pretrained", "save_model", "save_checkpoint", "save_state", "save_adapter")
SAVING_FUNCTIONS = ("torch.save", "safetensors.torch.save_*", "copy.deepcopy")
"""Functions that save weights, or keep them in memory"""
GREATER = (ast.Gt, ast.GtE)
LOWER = (ast.Lt, ast.LtE)


@dataclass(frozen=True, slots=True)
class KeptCheckpoint:
    """One place that decides which checkpoint is kept."""

    metric: str
    is_lower_better: bool
    takes_greater: bool
    node: ast.AST
    remedy: str


def best_checkpoint_choices(module: Module) -> Iterator[KeptCheckpoint]:
    """The places of a file that choose a checkpoint by a metric whose direction is known, each
    once.
    """
    seen = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for choice, home in _checkpoint_choices_of_run(trace):
            if home.path == module.path and choice.node not in seen:
                seen.add(choice.node)
                yield choice


def _checkpoint_choices_of_run(trace: Trace) -> Iterator[tuple[KeptCheckpoint, Module]]:
    """The choices of one run, each with its file."""
    for trainer in trace.calls(*TRAINERS):
        choice = _checkpoint_choice_of_trainer(trainer)
        if choice is not None:
            yield choice, trainer.home
    for callback in trace.calls(*OF_LIGHTNING):
        choice = _checkpoint_choice_of_lightning(callback)
        if choice is not None:
            yield choice, callback.home
    for event in trace.all_calls:
        if event.method in SAVING_METHODS or event.named(*SAVING_FUNCTIONS):
            for frame in event.frames("branch"):
                choice = _checkpoint_choice_of_test(frame)
                if choice is not None:
                    yield choice, event.home


def _is_lower_better(metric: str) -> bool | None:
    """Is a metric better where it is lower? None where its name does not say it."""
    words = words_with_known_direction(metric)
    return words[-1] in LOWER_IS_BETTER if words else None


def _checkpoint_choice_of_trainer(trainer: CallEvent) -> KeptCheckpoint | None:
    """The choice of a trainer by `greater_is_better`, which is not written in the call itself; None
    where it makes none.
    """
    arguments = arguments_of_trainer(trainer)
    if arguments is None:
        return None
    value = value_of_setting(arguments, "greater_is_better")
    named = value_of_setting(arguments, "metric_for_best_model")
    loads_best = constant_of(value_of_setting(arguments, "load_best_model_at_end"))
    if (
        value is None
        or not _direction_is_set_elsewhere(arguments, trainer)
        or loads_best is not True
    ):
        return None
    greater = constant_of(value)
    metric = "loss" if named is None and not arguments.call.is_open else constant_of(named)
    if not isinstance(metric, str) or not isinstance(greater, bool) or value.node is None:
        return None
    is_lower = _is_lower_better(metric)
    if is_lower is None:
        return None
    remedy = f"set greater_is_better to {not is_lower}"
    return KeptCheckpoint(metric, is_lower, greater, value.node, remedy)


def _direction_is_set_elsewhere(arguments: Result, trainer: CallEvent) -> bool:
    """Does `greater_is_better` come from a file of arguments, or from what is set on the object?"""
    is_set_later = "greater_is_better" in arguments.attributes
    node = arguments.call.node
    is_read = isinstance(node, ast.Call) and "greater_is_better" not in {
        keyword.arg for keyword in node.keywords
    }
    # A dictionary that the call unpacks is seen by the rule on settings.
    unpacks = isinstance(node, ast.Call) and any(keyword.arg is None for keyword in node.keywords)
    return is_set_later or (is_read and not unpacks)


def _checkpoint_choice_of_lightning(callback: CallEvent) -> KeptCheckpoint | None:
    """The choice of a Lightning callback by `monitor` and `mode`, which is `min` where it is not
    given; None where it is not known.
    """
    metric = constant_of(callback.argument(-1, "monitor") or _metric_of_early_stopping(callback))
    mode_argument = callback.argument(-1, "mode")
    if callback.is_open or isinstance(mode_argument, Option) or not isinstance(metric, str):
        return None
    mode = "min" if mode_argument is None else constant_of(mode_argument)
    is_lower = _is_lower_better(metric)
    if is_lower is None or mode not in ("min", "max"):
        return None
    node = (
        callback.node if mode_argument is None or mode_argument.node is None else mode_argument.node
    )
    remedy = f'mode="{"min" if is_lower else "max"}"'
    return KeptCheckpoint(metric, is_lower, mode == "max", node, remedy)


def _metric_of_early_stopping(callback: CallEvent) -> Value | None:
    """The metric that is the first argument of `EarlyStopping("val_loss")`; None for
    ModelCheckpoint, whose first argument is a folder.
    """
    return callback.argument(0, "monitor") if callback.named("*.EarlyStopping") else None


def _checkpoint_choice_of_test(frame: Frame) -> KeptCheckpoint | None:
    """The choice by a test of one's own, `if loss < best: best = loss`, in whose arm a model is
    saved; None for other frames.
    """
    branch = frame.node
    if not isinstance(branch, ast.If) or not frame.taken:
        return None
    bound = _names_set_to_names(branch.body)
    for node in ast.walk(branch.test):
        if not isinstance(node, ast.Compare) or len(node.ops) != 1:
            continue
        left, right = ast.unparse(node.left), ast.unparse(node.comparators[0])
        operator = node.ops[0]
        if not isinstance(operator, GREATER + LOWER):
            continue
        is_greater = isinstance(operator, GREATER)
        if bound.get(right) == left:
            metric, takes_greater = node.left, is_greater
        elif bound.get(left) == right:
            metric, takes_greater = node.comparators[0], not is_greater
        else:
            continue
        name = _last_metric_name(metric)
        is_lower = _is_lower_better(name)
        if is_lower is not None:
            sign = "<" if is_lower else ">"
            best = right if metric is node.left else left
            remedy = f"if {ast.unparse(metric)} {sign} {best}, and begin with the worst value"
            return KeptCheckpoint(name, is_lower, takes_greater, node, remedy)
    return None


def _names_set_to_names(body: list[ast.stmt]) -> dict[str, str]:
    """The names that the statements of an arm set, each with the name that it is set to: `best =
    loss`, also several at once.
    """
    copied: dict[str, str] = {}
    for statement in body:
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            continue
        target, value = statement.targets[0], statement.value
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = list(zip(target.elts, value.elts, strict=False))
        copied.update((ast.unparse(one), ast.unparse(other)) for one, other in pairs)
    return copied


def _last_metric_name(node: ast.expr) -> str:
    """The last name of a metric's expression: `val_loss` of `val_loss`, `self.val_loss` and
    `metrics["val_loss"]`, `loss` of `loss.item()`.
    """
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
        node = node.func.value
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
