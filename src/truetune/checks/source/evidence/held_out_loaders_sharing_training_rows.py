"""Finds loaders and files of held-out rows in hand-written trainings that share their rows with
those of the training.

The trade-off: what a loader is for is known by the name that it is put into, or by the method that
returns it, alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.find_servers_with_base_and_adapter import command_files_of_project
from truetune.checks.findings import Case
from truetune.checks.source.evidence.enclosing_function_and_evaluation_only_files import (
    function_around,
)
from truetune.checks.source.evidence.shared_rows_of_data_sets import (
    do_data_sets_share_rows,
    steps_from_source_to_rows,
)
from truetune.parsing.shell_commands import CommandFile, ShellCommand, last_option
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import Value

LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
FOR_TRAINING = re.compile(r"(?:^|_)(?:train|training|trn)(?:_|$)|^train", re.I)
FOR_EVALUATION = re.compile(
    r"(?:^|_)(?:val|valid|validation|eval|evaluation|dev|test|heldout|held_out)(?:_|$)", re.I
)
PICKS_ROWS = ("sampler", "batch_sampler")
"""Arguments of a loader that may take a part of the rows"""
FILE_SUFFIXES = (".json", ".jsonl", ".csv", ".tsv", ".txt", ".parquet", ".arrow", ".pt", ".bin")
"""What a file ends in; a folder or a published set may hold a part for each purpose"""
FILE_OPTION = r"(?:_?(?:file|files|data|path|data_path|dataset|set|jsonl|dir|data_file|data_dir))"
TRAIN_OPTION = re.compile(rf"(?:data_)?train(?:ing)?{FILE_OPTION}", re.I)
EVAL_OPTION = re.compile(
    rf"(?:data_)?(?:val|valid|validation|eval|evaluation|dev|test){FILE_OPTION}", re.I
)


class SharedLoaders(NamedTuple):
    """Two loaders, one of them of held-out rows by its name, that give rows of one data set."""

    train: ast.AST
    held: ast.AST
    name: str


class SharedFile(NamedTuple):
    """A command that gives a script one file for both."""

    option: str
    value: str
    case: Case


def held_out_loaders_of_trained_rows(module: Module) -> Iterator[SharedLoaders]:
    """The loaders of held-out rows in a file that give what another loader trains."""
    for train, held in _training_and_held_out_loaders(module):
        takes_all = (train.keywords.keys() | held.keywords.keys()).isdisjoint(PICKS_ROWS)
        if takes_all and _share_rows(train, held):
            yield SharedLoaders(
                train.node, held.node, _held_out_variable_of_loader(module, held.node)
            )


def training_and_held_out_rows(module: Module) -> Iterator[tuple[Value, Value]]:
    """The rows of a loader for training with those of a loader for held-out rows, each such pair in
    one file.
    """
    for pair in _training_and_held_out_loaders(module):
        rows, others = (call.argument(0, "dataset") for call in pair)
        if rows is not None and others is not None:
            yield rows, others


def _training_and_held_out_loaders(module: Module) -> Iterator[tuple[CallEvent, CallEvent]]:
    """Each loader for training in a file with each one for held-out rows."""
    for trace in traces_of_scripts_that_reach_file(module):
        own = [call for call in trace.calls(*LOADERS) if call.home.path == module.path]
        training = [call for call in own if _is_named_for_training(module, call.node)]
        for held in own:
            if _held_out_variable_of_loader(module, held.node):
                yield from ((train, held) for train in training)


def loaders_of_held_out_rows(module: Module) -> Iterator[ast.AST]:
    """The loaders of held-out rows in a file."""
    for call in module.calls(*LOADERS):
        if _held_out_variable_of_loader(module, call.node):
            yield call.node


def evaluation_file_options(module: Module) -> Iterator[str]:
    """The options of a script that name a file of rows to evaluate on."""
    return (
        one for one in _argparse_options(module) if EVAL_OPTION.fullmatch(_normalized_option(one))
    )


def _share_rows(train: CallEvent, held: CallEvent) -> bool:
    """Do two loaders give rows of one data set?"""
    rows, others = train.argument(0, "dataset"), held.argument(0, "dataset")
    if rows is None or others is None:
        return False
    way, other = steps_from_source_to_rows(rows), steps_from_source_to_rows(others)
    return way is not None and other is not None and do_data_sets_share_rows(way, other) is True


def _is_named_for_training(module: Module, node: ast.AST) -> bool:
    """Is a loader put into a name of training, and of nothing else?"""
    name = _name_assigned_or_method(module, node)
    return FOR_TRAINING.search(name) is not None and FOR_EVALUATION.search(name) is None


def _held_out_variable_of_loader(module: Module, node: ast.AST) -> str:
    """The name of held-out rows that a loader is put into; empty where there is none."""
    name = _name_assigned_or_method(module, node)
    is_held = FOR_EVALUATION.search(name) is not None and "train" not in name.lower()
    return name if is_held else ""


def _name_assigned_or_method(module: Module, node: ast.AST) -> str:
    """The name or attribute that a call is put into, or the method that returns it."""
    statement = module.statement(node)
    if isinstance(statement, ast.Return) and statement.value is node:
        around = function_around(module, node)
        return around.name if isinstance(around, ast.FunctionDef) else ""
    if not isinstance(statement, ast.Assign) or statement.value is not node:
        return ""
    target = statement.targets[0]
    if isinstance(target, ast.Attribute):
        return target.attr
    return target.id if isinstance(target, ast.Name) else ""


def files_given_to_train_and_evaluate(module: Module) -> Iterator[SharedFile]:
    """The commands around a script that give it one file to train on and to evaluate on."""
    trains = [
        one for one in _argparse_options(module) if TRAIN_OPTION.fullmatch(_normalized_option(one))
    ]
    held = list(evaluation_file_options(module))
    if not trains or not held:
        return
    script = Path(module.path)
    for file in command_files_of_project(script):
        for command in file.commands:
            if any(Path(word).name == script.name for word in command.words):
                trained = {last_option(command.words, one) for one in trains}
                yield from _held_out_options_given_trained_files(trained, held, file, command)


def _held_out_options_given_trained_files(
    trained: set[str | None], held: list[str], file: CommandFile, command: ShellCommand
) -> Iterator[SharedFile]:
    """The options of held-out rows that a command gives one of the files that are trained."""
    for option in held:
        value = last_option(command.words, option)
        if value is not None and value.endswith(FILE_SUFFIXES) and value in trained:
            case = Case(f"{option} {value}", file=file.path, line=command.line_of(option))
            yield SharedFile(option, value, case)


def _argparse_options(module: Module) -> Iterator[str]:
    """The options that a script reads by argparse, as they are written."""
    for call in module.methods("add_argument"):
        for one in call.args:
            if isinstance(one, ast.Constant) and str(one.value).startswith("--"):
                yield str(one.value)


def _normalized_option(option: str) -> str:
    """The option's name without dashes: `train_file` of `--train-file`."""
    return option.lstrip("-").replace("-", "_")
