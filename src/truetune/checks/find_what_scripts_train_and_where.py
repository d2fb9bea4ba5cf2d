"""Finds what the Python scripts around a file of commands train, and in which folders it lies
afterwards.

The trade-off: one training with plain names is compared. With two, or with a script that asks what was trained, it is
not known what a command is meant for, and nothing is said.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from truetune.checks.findings import Case
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.models_trained_and_asked import trained_models
from truetune.checks.source.evidence.prompt_forms import (
    is_model_in_written_folders,
    loaded_model_names,
    model_folders_written,
    project_scripts_around,
    trains_a_model,
)
from truetune.source.parsed_source_file import Module

MERGES = ("merge_and_unload", "save_pretrained_merged", "merge_adapter")


class TrainedByScripts(NamedTuple):
    """The one training of a project."""

    path: str
    bases: frozenset[str]
    outputs: frozenset[str]
    """Folders of the training, and of what merges it"""
    best: str
    """The folder to use: of merged weights, else of the training"""
    case: Case


def canonical_folder_name(name: str) -> str:
    """A name of a model or folder without what means the same folder."""
    return name.removeprefix("./").rstrip("/")


def find_trained_by_scripts(path: Path) -> TrainedByScripts | None:
    """The one training of the scripts around a file; None where there is none, or it is not known."""
    scripts = list(project_scripts_around(path))
    trainings = [one for one in scripts if trains_a_model(one)]
    if len(trainings) != 1:
        return None
    training = trainings[0]
    others = [one for one in scripts if one is not training]
    trained = trained_models(training)
    if trained is None or any(training.methods("push_to_hub")):
        return None
    if any(_loads_trained_without_merging(one, trained.outputs) for one in others):
        return None
    merged = [folder for one in (*others, training) for folder in _merged_folders(one)]
    outputs = {*trained.outputs, *merged}
    return TrainedByScripts(
        training.path,
        frozenset(map(canonical_folder_name, trained.bases)),
        frozenset(map(canonical_folder_name, outputs)),
        canonical_folder_name(_merged_else_saved_folder(merged, trained.outputs)),
        case_of_node(training, trained.node),
    )


def _merged_else_saved_folder(merged: list[str], outputs: frozenset[str]) -> str:
    """The folder of merged weights, else that of the saved model, which often lies within that of the checkpoints."""
    return min(merged, key=len) if merged else max(outputs, key=len)


def _loads_trained_without_merging(module: Module, outputs: frozenset[str]) -> bool:
    """Does a script load what was trained, and does not merge it? Then commands may use the base to compare."""
    if trains_a_model(module) or any(module.methods(*MERGES)):
        return False
    names = {canonical_folder_name(name) for name in loaded_model_names(module)}
    return any(
        is_model_in_written_folders(name, frozenset(map(canonical_folder_name, outputs)))
        for name in names
    )


def _merged_folders(module: Module) -> list[str]:
    """The folders that a script writes merged weights to."""
    if not any(module.methods(*MERGES)):
        return []
    return sorted(model_folders_written(module))
