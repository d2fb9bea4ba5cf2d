"""Tells what a path is (data, settings, source, log, model), and which kinds are judged as one
folder.
"""

from __future__ import annotations

import glob
from pathlib import Path

from truetune.data.find_cached_hub_datasets import (
    find_cached_dataset_files,
    may_be_hub_name,
    message_for_uncached_dataset,
)
from truetune.errors import TruetuneError, UsageError
from truetune.settings.recognise_input_kind import (
    InputKind,
    is_model_without_weights,
    recognise_kinds,
)
from truetune.settings.run_spec import RunSpec
from truetune.settings.stacks.registry import config_readers
from truetune.settings.suggest_spelling import did_you_mean_path
from truetune.trainers.trainer_fact_types import TrainerName

SOURCE_KINDS: tuple[InputKind, ...] = ("source", "notebook")
MODEL_BELOW: tuple[InputKind, ...] = ("model",)
"""What a folder with a model's files is taken for where it lies in the folder that was named"""
MODEL_FOLDER_KINDS = frozenset(("model", "model config", "adapter", "tokenizer"))
"""A folder that is mainly the files of a model; others may lie beside them"""
WHOLE_FOLDER_KINDS: frozenset[InputKind] = frozenset(
    ("encoded", "run", "adapter", "model", "model config", "tokenizer", "truetune")
)
"""What a folder is as a whole"""


def kinds_of_path(path: str, trained_by: TrainerName | None = None) -> tuple[InputKind, ...]:
    """The kinds of a path, as `recognise_kinds` tells them; a glob, a URI and the name of a cached
    data set of the hub are data. Raises UsageError if it is none of the kinds that truetune knows.
    """
    if may_be_hub_name(path):
        if find_cached_dataset_files(path):
            return ("data",)
        if not did_you_mean_path(path):
            raise UsageError(message_for_uncached_dataset(path))
    return (
        ("data",)
        # `run[1].jsonl` is a file before it is a pattern.
        if "://" in path or (glob.has_magic(path) and not Path(path).exists())
        else recognise_kinds(path, trained_by)
    )


def kinds_or_none(path: Path) -> tuple[InputKind, ...]:
    """The kinds of a path; none if it is nothing that truetune reads, or can't be read."""
    try:
        return recognise_kinds(path)
    except (UsageError, OSError):
        return ()


def is_settings_file(file: Path) -> bool:
    """Does a reader of settings know the file?"""
    try:
        return recognise_kinds(file)[0] in config_readers()
    except UsageError:
        return False


def holds_only_rows(path: str, spec: RunSpec) -> bool:
    """Is a path a file of rows, and of nothing else?"""
    try:
        return Path(path).is_file() and kinds_of_path(path, spec.trained_by) == ("data",)
    except TruetuneError:
        return False  # what cannot be read is said where it is looked at


def is_model_folder(path: Path) -> bool:
    """Does a folder hold a model or adapter, or the JSON files of a model?"""
    kinds = kinds_or_none(path)
    if "tokenizer" in kinds and is_model_without_weights(path):
        return True
    return not {"model", "model config", "adapter"}.isdisjoint(kinds)


def are_kinds_of_row_folder(kinds: tuple[InputKind, ...]) -> bool:
    """Are these the kinds of a folder that holds rows, and is no model, run or encoded data?"""
    return "data" in kinds and WHOLE_FOLDER_KINDS.isdisjoint(kinds)
