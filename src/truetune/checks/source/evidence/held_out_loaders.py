"""Loaders of held-out rows in loops of one's own, and files that commands give a script to train and to evaluate on.

The trade-off: what a loader is for is known by the name that it is put into, or by the method that returns it, alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.adapter_servers import command_files_around
from truetune.checks.findings import Case
from truetune.checks.source.evidence.row_parts import share_rows, steps_to
from truetune.parsing.shell_commands import last_option
from truetune.source.module import Module
from truetune.source.symbolic_execution.trace import CallEvent
from truetune.source.symbolic_execution.traces import traces_of
from truetune.source.symbolic_execution.values import Value

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


def loaders_of_the_same_rows(module: Module) -> Iterator[SharedLoaders]:
    """The loaders of held-out rows in a file that give what another loader trains."""
    for trace in traces_of(module):
        loaders = [
            call
            for call in trace.calls(*LOADERS)
            if call.home.path == module.path and call.keywords.keys().isdisjoint(PICKS_ROWS)
        ]
        training = [call for call in loaders if _is_for_training(module, call.node)]
        for held in loaders:
            name = _held_out_name(module, held.node)
            for train in training if name else ():
                if _share_rows(train, held):
                    yield SharedLoaders(train.node, held.node, name)


def loaders_by_purpose(module: Module) -> Iterator[tuple[Value, Value]]:
    """The rows of a loader of training, and those of a loader of held-out rows, each pair in one file."""
    for trace in traces_of(module):
        own = [call for call in trace.calls(*LOADERS) if call.home.path == module.path]
        for train in (call for call in own if _is_for_training(module, call.node)):
            for held in (call for call in own if _held_out_name(module, call.node)):
                rows, others = train.argument(0, "dataset"), held.argument(0, "dataset")
                if rows is not None and others is not None:
                    yield rows, others


def loaders(module: Module) -> Iterator[ast.AST]:
    """The loaders of held-out rows in a file."""
    for call in module.calls(*LOADERS):
        if _held_out_name(module, call.node):
            yield call.node


def evaluation_file_options(module: Module) -> Iterator[str]:
    """The options of a script that name a file of rows to evaluate on."""
    return (one for one in _file_options(module) if EVAL_OPTION.fullmatch(_plain(one)))


def _share_rows(train: CallEvent, held: CallEvent) -> bool:
    """Do two loaders give rows of one data set?"""
    rows, others = train.argument(0, "dataset"), held.argument(0, "dataset")
    if rows is None or others is None:
        return False
    way, other = steps_to(rows), steps_to(others)
    return way is not None and other is not None and share_rows(way, other) is True


def _is_for_training(module: Module, node: ast.AST) -> bool:
    """Is a loader put into a name of training, and of nothing else?"""
    name = _name_of(module, node)
    return FOR_TRAINING.search(name) is not None and FOR_EVALUATION.search(name) is None


def _held_out_name(module: Module, node: ast.AST) -> str:
    """The name of held-out rows that a loader is put into; empty where there is none."""
    name = _name_of(module, node)
    is_held = FOR_EVALUATION.search(name) is not None and "train" not in name.lower()
    return name if is_held else ""


def _name_of(module: Module, node: ast.AST) -> str:
    """The name or attribute that a call is put into, or the method that returns it."""
    statement = module.statement(node)
    if isinstance(statement, ast.Return) and statement.value is node:
        around = next(
            (one for one in module.parents(node) if isinstance(one, ast.FunctionDef)), None
        )
        return around.name if around is not None else ""
    if not isinstance(statement, ast.Assign) or statement.value is not node:
        return ""
    target = statement.targets[0]
    if isinstance(target, ast.Attribute):
        return target.attr
    return target.id if isinstance(target, ast.Name) else ""


def files_given_twice(module: Module) -> Iterator[SharedFile]:
    """The commands around a script that give it one file to train on and to evaluate on."""
    trains = [one for one in _file_options(module) if TRAIN_OPTION.fullmatch(_plain(one))]
    held = list(evaluation_file_options(module))
    if not trains or not held:
        return
    for file in command_files_around(Path(module.path)):
        for command in file.commands:
            if not any(Path(word).name == Path(module.path).name for word in command.words):
                continue
            given = {last_option(command.words, one) for one in trains} - {None, ""}
            for option in held:
                value = last_option(command.words, option)
                if value is not None and value.endswith(FILE_SUFFIXES) and value in given:
                    case = Case(f"{option} {value}", file=file.path, line=command.line_of(option))
                    yield SharedFile(option, value, case)


def _file_options(module: Module) -> Iterator[str]:
    """The options that a script reads by argparse, as they are written."""
    for call in module.methods("add_argument"):
        for one in call.args:
            if isinstance(one, ast.Constant) and str(one.value).startswith("--"):
                yield str(one.value)


def _plain(option: str) -> str:
    """`train_file` of `--train-file`."""
    return option.lstrip("-").replace("-", "_")
