"""Finds the published model that a folder was trained from, where a training of the same project
wrote the folder.

A served folder is called as its project likes (`outputs/returns-desk-merged`), and whether its
weights overflow, or which tokenizer they have, is known by their base. Scripts, settings and
commands around the file that names the folder say what was trained into it; a merge is followed to
the adapter that it loads. The trade-off: where they name several models, it is not known, and
nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.identify_model_by_published_name import (
    family_known_to_overflow_float16,
    is_published_model_name,
)
from truetune.checks.source.evidence.models_trained_and_asked import trained_models
from truetune.checks.source.evidence.prompt_forms import (
    is_model_in_written_folders,
    loaded_model_names,
    model_folders_written,
    project_scripts_around,
    readable_settings_around,
    trains_a_model,
)
from truetune.source.parsed_source_file import Module


class _LoadsAndWrites(NamedTuple):
    """What a file of the project loads, and where it writes models to."""

    models: frozenset[str]
    folders: frozenset[str]
    path: str
    """The file that says so"""


class BaseBehindFolder(NamedTuple):
    """The model that was trained into a folder, and the file that says so."""

    model: str
    path: str


def published_base_of_folder(path: Path, folder: str) -> BaseBehindFolder | None:
    """The one published model that the project around a file trained into a folder; None where it
    is not known.

    Args:
        path: The script or file of commands that names the folder.
        folder: As it stands there.
    """
    if not folder or is_published_model_name(folder):
        return None
    writings = list(_loads_and_writes_around(path))
    seen, names, bases = {_normalized_folder_name(folder)}, [_normalized_folder_name(folder)], {}
    # A merge reads what the training wrote: each folder is followed once.
    while names:
        name = names.pop()
        for writing in writings:
            if not is_model_in_written_folders(name, writing.folders):
                continue
            for model in writing.models:
                if is_published_model_name(model):
                    bases[model] = writing.path
                elif model not in seen:
                    seen.add(model)
                    names.append(model)
    if len(bases) != 1:
        return None
    return BaseBehindFolder(*bases.popitem())


def overflowing_family_of_folder(path: Path, folder: str) -> str | None:
    """The family of the published base of a folder, if that family overflows in float16; empty
    otherwise.
    """
    base = published_base_of_folder(path, folder)
    return family_known_to_overflow_float16(base.model) if base is not None else None


def _loads_and_writes_around(path: Path) -> Iterator[_LoadsAndWrites]:
    """What the scripts, settings and commands around a file write."""
    for module in project_scripts_around(path):
        writing = _loads_and_writes_of_script(module)
        if writing.folders:
            yield writing
    for file, config in readable_settings_around(path.parent):
        output, model = config.spec.training.output_dir, config.spec.model
        if output and model:
            yield _LoadsAndWrites(
                frozenset((_normalized_folder_name(model),)),
                frozenset((_normalized_folder_name(output),)),
                str(file),
            )


def _loads_and_writes_of_script(module: Module) -> _LoadsAndWrites:
    """What a script writes, and which models it loads: of a training, the one that it trains."""
    trained = trained_models(module) if trains_a_model(module) else None
    # A training may load a teacher or a judge beside the model.
    models = trained.bases if trained is not None else loaded_model_names(module)
    folders = model_folders_written(module) | (
        trained.outputs if trained is not None else frozenset()
    )
    return _LoadsAndWrites(
        frozenset(map(_normalized_folder_name, models)),
        frozenset(_normalized_folder_name(folder) for folder in folders if folder.strip("./")),
        module.path,
    )


def _normalized_folder_name(name: str) -> str:
    """The name of a model or folder in one spelling: without the parts that mean the same folder,
    such as `./`.
    """
    return name.removeprefix("./").rstrip("/")
