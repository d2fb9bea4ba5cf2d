"""Tells whether the model below an adapter is the one that it was trained on, by names and by what
wrote its folder.

How it works: names of published models say what weights they are (`identify_model_by_published_name`). A folder says
nothing by itself, so the project is asked what wrote it: a merge of another adapter, or a training of all weights,
makes other weights than any published model.

The trade-off: a folder that nothing in sight writes is taken for trained weights where it is called so
(`sft-merged`), and then it is only suspected.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path, PurePath
from typing import NamedTuple

from truetune.checks.find_adapters_merged_into_weights import merges_in_folder
from truetune.checks.find_training_stages_of_files import stages_of_file
from truetune.checks.find_uses_of_weight_folders import is_same_folder, is_same_or_below
from truetune.checks.findings import Case
from truetune.checks.identify_model_by_published_name import (
    explain_other_base,
    is_named_like_tuned_weights,
    is_owner_a_parent_folder,
    is_published_model_name,
    is_tuned_folder,
    model_identity,
)
from truetune.errors import TruetuneError
from truetune.parsing.shell_commands import is_command_file

MAX_FOLDERS, MAX_FILES = 12, 60
"""Folders around a file that are read, and the scripts and settings in each. Chosen: projects have fewer"""
WRITERS = (".py", ".yaml", ".yml")


class BaseBelow(NamedTuple):
    """How the model under an adapter differs from the one that it was trained on."""

    why: str
    is_proved: bool
    cases: tuple[Case, ...] = ()
    """What wrote the folder that the adapter was trained on"""


def explain_other_base_below_adapter(served: str, trained: str, beside: str) -> BaseBelow | None:
    """How an adapter's own base differs from the model that it is put on; None where both may be the same weights.

    Args:
        served: The model that the adapter is put on.
        trained: The model that it was trained on.
        beside: The file that puts it on; its project is searched for what wrote the folders.
    """
    if is_same_folder(served, trained):
        return None
    other = explain_other_base(served, trained)
    if other is not None and other.is_proved:
        return BaseBelow(other.why, is_proved=True)
    path = Path(beside)
    if _is_served_model_a_published_one(served, trained):
        origin = _find_writer_of_folder(trained, path)
        if origin is not None:
            return BaseBelow(
                f"what {trained} had learned ({origin.text}) is missing below the adapter",
                is_proved=True,
                cases=(origin,),
            )
        if is_tuned_folder(trained) or (
            is_named_like_tuned_weights(trained) and is_owner_a_parent_folder(trained, path)
        ):
            return BaseBelow(f"the training that is in {trained} is missing", is_proved=False)
    return None if other is None else BaseBelow(other.why, other.is_proved)


def _is_served_model_a_published_one(served: str, trained: str) -> bool:
    """Is the model below the adapter a published one, or a copy of one that goes by its name?

    A folder with the name of the trained model, or of trained weights, is not.
    """
    if is_published_model_name(served):
        return not is_tuned_folder(served)
    is_another = Path(served).name != Path(trained).name
    return (
        is_another
        and model_identity(served) is not None
        and not is_named_like_tuned_weights(served)
    )


def _find_writer_of_folder(folder: str, beside: Path) -> Case | None:
    """The line that merges an adapter into a folder, or trains all weights into it, in the files
    around; None if none does.
    """
    own = beside.absolute().parent
    for around in _neighbour_folders(beside):
        if _is_single_relative_name(folder) and around.parent == own.parent and around != own:
            # `./merged` of the project next door is another folder.
            continue
        for merge in merges_in_folder(around):
            if is_same_folder(folder, merge.folder):
                text = f"{Path(merge.file).name} merges {merge.adapter} into {merge.folder}"
                return Case(text, file=_path_from_working_folder(merge.file), line=merge.line)
        trained = _full_training_into(folder, around)
        if trained is not None:
            return trained
    return None


def _is_single_relative_name(folder: str) -> bool:
    """Is the folder named by a single relative name (`merged`), as folders of many projects are?"""
    path = PurePath(folder)
    return not path.is_absolute() and not folder.startswith("~") and len(path.parts) == 1


def _full_training_into(folder: str, around: Path) -> Case | None:
    """A training of all weights that writes into `folder`, among the files of the folder `around`;
    None if there is none.
    """
    for file in _scripts_commands_and_settings_in(around):
        try:
            stages = list(stages_of_file(file))
        except (TruetuneError, OSError, ValueError):
            continue  # the rules on the file itself say what is wrong with it
        for stage in stages:
            if not stage.trains_adapter and is_same_or_below(folder, stage.output):
                text = f"{file.name} trains {stage.model} into {stage.output}"
                return Case(text, file=_path_from_working_folder(stage.file), line=1)
    return None


def _path_from_working_folder(file: str) -> str:
    """A path relative to the working folder if it lies below it; else as it is."""
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file


def _scripts_commands_and_settings_in(folder: Path) -> list[Path]:
    """The first scripts, files of commands and files of settings of a folder."""
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return []
    files = (one for one in entries if one.suffix in WRITERS or is_command_file(one))
    return list(islice((one for one in files if one.is_file()), MAX_FILES))


def _neighbour_folders(beside: Path) -> list[Path]:
    """The folder of a file, the one above, and those directly below both."""
    own = beside.absolute().parent
    folders = [own]
    for around in (own, own.parent):
        try:
            below = sorted(one for one in around.iterdir() if one.is_dir())
        except OSError:
            continue
        folders += [one for one in (around, *below) if not one.name.startswith(".")][:MAX_FOLDERS]
    return list(dict.fromkeys(folders))[: 2 * MAX_FOLDERS]
