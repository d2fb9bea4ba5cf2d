"""The published model behind a folder that a training of the same project wrote.

A served folder is called as its project likes (`outputs/returns-desk-merged`), and whether its weights overflow, or
which tokenizer they have, is known by their base. Scripts, settings and commands around the file that names the folder
say what was trained into it; a merge is followed to the adapter that it loads. The trade-off: where they name several
models, it is not known, and nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.model_identity import is_published_model_name, overflowing_family
from truetune.checks.source.evidence.models_in_project_runs import trained_models
from truetune.checks.source.evidence.prompt_forms import (
    is_written_by_script,
    loaded_names,
    scripts_around,
    settings_around,
    trains_a_model,
    written_folders,
)
from truetune.source.parsed_source_file import Module


class _Writing(NamedTuple):
    """What a file of the project loads, and where it writes models to."""

    models: frozenset[str]
    folders: frozenset[str]
    path: str
    """The file that says so"""


class BaseBehindFolder(NamedTuple):
    """The model that was trained into a folder, and the file that says so."""

    model: str
    path: str


def base_behind_folder(path: Path, folder: str) -> BaseBehindFolder | None:
    """The one published model that the project around a file trained into a folder; None where it is not known.

    Args:
        path: The script or file of commands that names the folder.
        folder: As it stands there.
    """
    if not folder or is_published_model_name(folder):
        return None
    writings = list(_writings_around(path))
    seen, names, bases = {_plain(folder)}, [_plain(folder)], {}
    # A merge reads what the training wrote: each folder is followed once.
    while names:
        name = names.pop()
        for writing in writings:
            if not is_written_by_script(name, writing.folders):
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


def overflowing_family_behind(path: Path, folder: str) -> str | None:
    """The family that overflows in float16, of the model that was trained into a folder."""
    base = base_behind_folder(path, folder)
    return overflowing_family(base.model) if base is not None else None


def _writings_around(path: Path) -> Iterator[_Writing]:
    """What the scripts, settings and commands around a file write."""
    for module in scripts_around(path):
        writing = _writing_of_script(module)
        if writing.folders:
            yield writing
    for file, config in settings_around(path.parent):
        output, model = config.spec.training.output_dir, config.spec.model
        if output and model:
            yield _Writing(frozenset((_plain(model),)), frozenset((_plain(output),)), str(file))


def _writing_of_script(module: Module) -> _Writing:
    """What a script writes, and which models it loads: of a training, the one that it trains."""
    trained = trained_models(module) if trains_a_model(module) else None
    # A training may load a teacher or a judge beside the model.
    models = trained.bases if trained is not None else loaded_names(module)
    folders = written_folders(module) | (trained.outputs if trained is not None else frozenset())
    return _Writing(
        frozenset(map(_plain, models)),
        frozenset(_plain(folder) for folder in folders if folder.strip("./")),
        module.path,
    )


def _plain(name: str) -> str:
    """A name of a model or folder without what means the same folder."""
    return name.removeprefix("./").rstrip("/")
