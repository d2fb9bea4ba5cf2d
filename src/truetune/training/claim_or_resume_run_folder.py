"""Decides whose a run's folder is: a new run's, that of a run to resume, or that of a run that has
ended.

The inputs of a run are compared with those in the folder's run.json. The same ones resume it or find it done; other
ones are refused, since two runs in a folder would each remove the other's checkpoints.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
from accelerate import PartialState
from accelerate.utils import broadcast_object_list

from truetune.checkpoint.read_run_and_check_checkpoints import (
    WHOLE_FILE,
    describe_files_unlike_listing,
    find_checkpoint_fault,
    list_checkpoints,
    read_run_written_by_truetune,
    step_of_checkpoint_name,
)
from truetune.checkpoint.read_weight_files_and_faults import read_json_object
from truetune.data.guard_output_folder import (
    LOCK_NAME,
    ForeignFile,
    foreign_file_error,
    is_empty_lock_file,
)
from truetune.errors import UsageError
from truetune.settings.run_spec import RunSpec
from truetune.training.tell_files_of_run_from_other_files import (
    OTHER_FOLDER_HINT,
    files_listed_by_checkpoint,
    find_foreign_file,
    refuse_unsuitable_run_folder,
    remove_unfinished_checkpoint,
)
from truetune.training.write_run_record import describe_input_differences, library_versions


@dataclass(frozen=True)
class FolderClaim:
    """A folder, and what a run finds in it."""

    folder: Path
    before: Mapping[str, Any]
    """run.json as it stood there; empty in a new folder"""
    checkpoint: Path | None
    """The last whole checkpoint, to resume from; None to begin"""
    finished: bool
    """The same run has ended here, and its files are as it left them"""
    notes: tuple[str, ...]
    """What was put aside, and why"""


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder. Raises UsageError where one is in it, or it can't be written."""
    # One lock a run: the other processes belong to the one that holds it.
    if not PartialState().is_main_process:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # lexists, for a broken link is something of the user's as well.
        if os.path.lexists(folder / LOCK_NAME) and not is_empty_lock_file(folder / LOCK_NAME):
            raise UsageError(
                f"{folder / LOCK_NAME}: truetune did not write it; {OTHER_FOLDER_HINT}"
            )
        # timeout=0: waiting would hide that another run is at work. The system frees the lock of a
        # killed process by itself.
        lock = filelock.FileLock(folder / LOCK_NAME, timeout=0).acquire()
    except filelock.Timeout:
        raise UsageError(
            f"{folder}: another process trains there; wait for its end, or {OTHER_FOLDER_HINT}"
        ) from None
    except OSError as error:
        raise UsageError(
            f"{folder}: can't be written: {error.strerror}; {OTHER_FOLDER_HINT}"
        ) from None
    with lock:
        yield


def inspect_folder_and_drop_partial_checkpoint(
    folder: Path, inputs: Mapping[str, Any]
) -> FolderClaim:
    """Inspect a run's folder, and remove a checkpoint that is not whole. All processes get what the
    first one finds. Raises UsageError where the folder is not ours, or holds a run of other inputs.

    Raises UsageError where the folder is not ours, or holds a run of other inputs.
    """
    outcome: list[Any] = [None]
    if PartialState().is_main_process:
        try:
            outcome = [_claim_in_first_process(folder, inputs)]
        except UsageError as error:
            outcome = [error]
    # All processes have to take the same branch afterwards, or they wait in different collectives
    # for ever. So errors are sent as values, too.
    broadcast_object_list(outcome)
    if isinstance(outcome[0], UsageError):
        raise outcome[0]
    claim: FolderClaim = outcome[0]
    return claim


def _claim_in_first_process(folder: Path, inputs: Mapping[str, Any]) -> FolderClaim:
    """The claim on a folder, made by the first process alone.

    Raises UsageError as `inspect_folder_and_drop_partial_checkpoint` does.
    """
    before = read_run_written_by_truetune(folder)
    if not before:
        refuse_unsuitable_run_folder(folder, RunSpec())
        return FolderClaim(folder, {}, None, False, ())
    if _ended_before_any_checkpoint(folder, before):
        _refuse_foreign_files(folder, before, None)
    if _ended_before_any_checkpoint(folder, before) and describe_input_differences(
        inputs, before["inputs"]
    ):
        return FolderClaim(
            folder,
            {},
            None,
            False,
            ("an earlier run with other settings never began here: its record goes",),
        )
    refuse_folder_with_other_run(folder, inputs)
    # Only where every file is as the run left it: a folder whose weights were edited is trained
    # again rather than taken for the result.
    if before["status"] == "finished" and not any(
        describe_files_unlike_listing(folder, before["files"])
    ):
        return FolderClaim(folder, before, None, True, ())
    notes: list[str] = []
    checkpoint = _last_whole_checkpoint_dropping_partial(folder, before, notes)
    if checkpoint is not None:
        notes += _notes_on_changed_libraries(before.get("versions", {}))
    return FolderClaim(folder, before, checkpoint, False, tuple(notes))


def refuse_folder_with_other_run(folder: Path, inputs: Mapping[str, Any]) -> None:
    """Raise UsageError where a run of other inputs is in a folder. Nothing is made there to find
    out.
    """
    before = read_run_written_by_truetune(folder)
    if not before or _ended_before_any_checkpoint(folder, before):
        return
    different = describe_input_differences(inputs, before["inputs"])
    if different:
        raise UsageError(
            f"{folder} holds a run ({before['status']}) that differs: {'; '.join(different)};"
            f" {OTHER_FOLDER_HINT}"
        )


def _ended_before_any_checkpoint(folder: Path, run: Mapping[str, Any]) -> bool:
    """Did a run end in its checks, before any checkpoint? Then nothing is lost by another one."""
    return run["status"] == "looking" and not list_checkpoints(folder)


def _notes_on_changed_libraries(then: Mapping[str, str]) -> list[str]:
    """What to say where libraries were exchanged since the run began."""
    changed = [
        f"{name} {then[name]} -> {now}"
        for name, now in library_versions().items()
        if then.get(name, now) != now
    ]
    return (
        [f"since the run began: {', '.join(changed)}; losses may differ in their last digits"]
        if changed
        else []
    )


def _last_whole_checkpoint_dropping_partial(
    folder: Path, run: Mapping[str, Any], notes: list[str]
) -> Path | None:
    """The last whole checkpoint that a run can resume from.

    One that the run was writing when it ended is removed. Raises UsageError where something stands in the way that the
    run did not write, or that has changed since: it is named, and stays.
    """
    # A checkpoint counts only by its whole.json, which is written last: transformers' own files are
    # there long before they are complete.
    last = None
    for path in list_checkpoints(folder):
        mark = _read_whole_json_of_checkpoint(path)
        if mark is not None and mark["resumes"]:
            last = path
    _refuse_foreign_files(folder, run, last)
    # From the newest back to the one that is taken: what lies behind it was begun and not ended, or
    # cannot be resumed.
    for path in reversed(list_checkpoints(folder)):
        if path == last:
            break
        if _read_whole_json_of_checkpoint(path) is not None:
            notes.append(
                f"{path.name} holds weights alone (save_only_model): the run can't resume from it"
            )
        elif run.get("writing") == path.name:
            notes.append(f"{path.name} is not whole ({find_checkpoint_fault(path)}): removed")
            remove_unfinished_checkpoint(path)
    return last


def _refuse_foreign_files(folder: Path, run: Mapping[str, Any], checkpoint: Path | None) -> None:
    """Raise UsageError for what stands where a run will write that resumes from a checkpoint, and is not its own."""
    # Before anything is removed or replaced: a refusal must leave the folder as it was.
    step = -1 if checkpoint is None else step_of_checkpoint_name(checkpoint) or 0
    stranger = find_foreign_file(folder, run, step)
    if stranger is None and checkpoint is not None:
        fault = find_checkpoint_fault(checkpoint)
        if fault is not None:
            stranger = ForeignFile(checkpoint, f"is not as truetune wrote it ({fault})")
    if stranger is not None:
        raise foreign_file_error(
            stranger,
            "nothing was changed: restore it or move it elsewhere, and the same command resumes;"
            f" or {OTHER_FOLDER_HINT}",
        )


def _read_whole_json_of_checkpoint(checkpoint: Path) -> dict[str, Any] | None:
    """whole.json of a checkpoint; None where there is none that truetune wrote."""
    return (
        read_json_object(checkpoint / WHOLE_FILE, [])
        if files_listed_by_checkpoint(checkpoint) is not None
        else None
    )
