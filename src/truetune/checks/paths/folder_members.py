"""Lists what lies in a folder of several kinds: the files and runs that are judged one by one, and
the models below.

Folders are read a few levels down, and up to a number of entries: a data set of a million files may
lie below.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from truetune.checks.paths.explain_not_judged_paths import REASON_BY_UNJUDGED_KIND
from truetune.checks.paths.path_kinds import (
    WHOLE_FOLDER_KINDS,
    are_kinds_of_row_folder,
    is_model_folder,
    kinds_or_none,
)
from truetune.parsing.shell_commands import is_command_file
from truetune.settings.recognise_input_kind import MAX_FOLDER_ENTRIES, METADATA_FILES, InputKind
from truetune.settings.stacks.registry import config_readers
from truetune.source.find_source_files import SKIPPED_FOLDERS

# Chosen, not measured: saves/model/lora/sft is three folders down; a checkout of a library has hundreds of settings.
MAX_FOLDERS_DOWN = 3
MAX_MEMBERS_BELOW = 40
MEMBER_KINDS: frozenset[InputKind] = frozenset(
    (*REASON_BY_UNJUDGED_KIND, "commands", "log", "modelfile", "run")
)
"""What is looked at file by file where it lies in a folder of several kinds"""


def list_folder_members(folder: Path) -> tuple[list[tuple[Path, tuple[InputKind, ...]]], list[str]]:
    """(members, names of what is of no kind) of a folder of several kinds; a member is a path with
    its kinds.
    """
    members: list[tuple[Path, tuple[InputKind, ...]]] = []
    unread = []
    for path in list_user_entries(folder):
        kinds = kinds_or_none(path)
        if kinds and _is_member_by_itself(path, kinds):
            members.append((path, kinds))
            continue
        below = list(_members_below(path)) if path.is_dir() else []
        members += below
        if not kinds and _holds_command_files(path):
            members.append((path, ("commands",)))
        elif not kinds and not below:
            unread.append(path.name)
    return members, unread


def list_user_entries(folder: Path) -> list[Path]:
    """The files and folders in a folder that the user may mean, by name.

    Files that describe others (a README, a licence) and folders of tools are nothing that was
    forgotten.
    """
    return [
        path
        for path in sorted(islice(folder.iterdir(), MAX_FOLDER_ENTRIES))
        if not path.name.startswith(".")
        and path.name not in METADATA_FILES
        and path.name not in SKIPPED_FOLDERS
    ]


def list_row_folders_below(folder: Path) -> list[Path]:
    """The folders directly below that hold rows and are no model, run or cache of something else."""
    return [path for path in _user_folders(folder) if are_kinds_of_row_folder(kinds_or_none(path))]


def _is_member_by_itself(path: Path, kinds: tuple[InputKind, ...]) -> bool:
    """Is a path judged by itself: the folder of a run, or a file of a kind that is judged file by
    file?
    """
    return kinds[0] == "run" if path.is_dir() else _is_judged_file_by_file(kinds[0])


def _members_below(folder: Path) -> Iterator[tuple[Path, tuple[InputKind, ...]]]:
    """The runs, settings and logs in a folder of a project (`configs/`, `logs/`, `saves/x/sft/`)
    and those below it.

    Sources and commands are not among them: they are linted together, whatever folder they are in.
    Nor are models, which have limits of their own, and configurations that no rule reads alone.
    """
    yield from islice(_walk_members(folder, MAX_FOLDERS_DOWN), MAX_MEMBERS_BELOW)


def _walk_members(folder: Path, levels: int) -> Iterator[tuple[Path, tuple[InputKind, ...]]]:
    """As `_members_below`, so many levels down."""
    if levels == 0 or not WHOLE_FOLDER_KINDS.isdisjoint(kinds_or_none(folder)):
        return
    for path in list_user_entries(folder):
        kinds = kinds_or_none(path)
        if kinds and _is_member_by_itself(path, kinds):
            if kinds[0] != "commands" and kinds[0] not in REASON_BY_UNJUDGED_KIND:
                yield path, kinds
        elif path.is_dir():
            yield from _walk_members(path, levels - 1)


def models_below(folder: Path) -> Iterator[Path]:
    """The models and adapters in a folder of several kinds, one or two levels below: MODEL,
    out/MODEL.
    """
    for child in _user_folders(folder):
        # The checkpoints of a run are looked at with the run.
        if "run" in kinds_or_none(child):
            continue
        if is_model_folder(child):
            yield child
        else:
            yield from filter(is_model_folder, _user_folders(child))


def _user_folders(folder: Path) -> list[Path]:
    """The folders in a folder that may be the user's, by name."""
    return [
        path
        for path in sorted(islice(folder.iterdir(), MAX_FOLDER_ENTRIES))
        if path.is_dir() and not path.name.startswith(".") and path.name not in SKIPPED_FOLDERS
    ]


def _holds_command_files(path: Path) -> bool:
    """Does a folder hold files of commands, in it or below (lm_eval writes its results two folders
    down)?
    """
    if not path.is_dir():
        return False
    # Bounded: a data set may lie below with a million files.
    names = islice(path.rglob("*"), MAX_FOLDER_ENTRIES)
    return any(is_command_file(file) for file in names if file.is_file())


def _is_judged_file_by_file(kind: InputKind) -> bool:
    """Is a file of this kind judged by itself if it lies in a folder of several kinds?"""
    return kind in MEMBER_KINDS or kind in config_readers()


def find_last_checkpoint(folder: Path) -> Path | None:
    """The newest numbered checkpoint in the folder of a run; None if there is none."""
    numbered = [
        path for path in folder.glob("checkpoint-*") if path.name.partition("-")[2].isdecimal()
    ]
    return max(numbered, key=lambda path: int(path.name.partition("-")[2]), default=None)
