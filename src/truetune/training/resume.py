"""Whose a folder is: a new run's, one's that goes on there, or one's that has ended there."""

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

from truetune.checkpoint.run_folder import (
    WHOLE_FILE,
    checkpoint_step,
    find_checkpoint_fault,
    find_damages,
    list_checkpoints,
    read_own_run,
)
from truetune.checkpoint.weight_files import read_object
from truetune.data.output_folder import LOCK_NAME, Stranger, is_our_lock, stranger_error
from truetune.errors import UsageError
from truetune.spec.run import RunSpec
from truetune.training.record import differences, versions
from truetune.training.run_files import (
    ELSEWHERE,
    check_run_folder,
    listed_files,
    remove_unfinished,
    stranger_in_the_way,
)


@dataclass(frozen=True)
class Claim:
    """A folder, and what a run finds in it."""

    folder: Path
    before: Mapping[str, Any]
    """run.json as it stood there; empty in a new folder"""
    checkpoint: Path | None
    """The last whole checkpoint, to go on from; None to begin"""
    finished: bool
    """The same run has ended here, and its files are as it left them"""
    notes: tuple[str, ...]
    """What was put aside, and why"""


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder. Raises UsageError where one is in it, or it can't be written."""
    if not PartialState().is_main_process:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(folder / LOCK_NAME) and not is_our_lock(folder / LOCK_NAME):
            raise UsageError(f"{folder / LOCK_NAME}: truetune did not write it; {ELSEWHERE}")
        lock = filelock.FileLock(folder / LOCK_NAME, timeout=0).acquire()
    except filelock.Timeout:
        raise UsageError(
            f"{folder}: another process trains there; wait for its end, or {ELSEWHERE}"
        ) from None
    except OSError as error:
        raise UsageError(f"{folder}: can't be written: {error.strerror}; {ELSEWHERE}") from None
    with lock:
        yield


def claim(folder: Path, inputs: Mapping[str, Any]) -> Claim:
    """Look what is in the folder, and put aside what is not whole. All processes get what the first one finds.

    Raises UsageError where the folder is not ours, or holds a run of other inputs.
    """
    found: list[Any] = [None]
    if PartialState().is_main_process:
        try:
            found = [_claim(folder, inputs)]
        except UsageError as error:
            found = [error]
    broadcast_object_list(found)
    if isinstance(found[0], UsageError):
        raise found[0]
    made: Claim = found[0]
    return made


def _claim(folder: Path, inputs: Mapping[str, Any]) -> Claim:
    before = read_own_run(folder)
    if not before:
        check_run_folder(folder, RunSpec())
        return Claim(folder, {}, None, False, ())
    if _never_began(folder, before):
        _check_way(folder, before, None)
    if _never_began(folder, before) and differences(inputs, before["inputs"]):
        return Claim(
            folder,
            {},
            None,
            False,
            ("an earlier run with other settings never began here: its record goes",),
        )
    check_same_run(folder, inputs)
    if before["status"] == "finished" and not any(find_damages(folder, before["files"])):
        return Claim(folder, before, None, True, ())
    notes: list[str] = []
    found = _last_whole(folder, before, notes)
    if found is not None:
        notes += _renewed(before.get("versions", {}))
    return Claim(folder, before, found, False, tuple(notes))


def check_same_run(folder: Path, inputs: Mapping[str, Any]) -> None:
    """Raise UsageError where a run of other inputs is in a folder. Nothing is made there to find out."""
    before = read_own_run(folder)
    if not before or _never_began(folder, before):
        return
    different = differences(inputs, before["inputs"])
    if different:
        raise UsageError(
            f"{folder} holds a run ({before['status']}) that differs: {'; '.join(different)};"
            f" {ELSEWHERE}"
        )


def _never_began(folder: Path, run: Mapping[str, Any]) -> bool:
    return run["status"] == "looking" and not list_checkpoints(folder)


def _renewed(then: Mapping[str, str]) -> list[str]:
    """What to say where libraries were exchanged since the run began."""
    changed = [
        f"{name} {then[name]} -> {now}"
        for name, now in versions().items()
        if then.get(name, now) != now
    ]
    return (
        [f"since the run began: {', '.join(changed)}; losses may differ in their last digits"]
        if changed
        else []
    )


def _last_whole(folder: Path, run: Mapping[str, Any], notes: list[str]) -> Path | None:
    """The last whole checkpoint that a run can go on from.

    One that the run was writing when it ended is removed. Raises UsageError where something stands in the way that the
    run did not write, or that has changed since: it is named, and stays.
    """
    whole = [
        path
        for path in list_checkpoints(folder)
        if (mark := _mark_of(path)) is not None and mark["resumes"]
    ]
    found = whole[-1] if whole else None
    _check_way(folder, run, found)
    for path in reversed(list_checkpoints(folder)):
        if path == found:
            break
        if _mark_of(path) is not None:
            notes.append(
                f"{path.name} holds weights alone (save_only_model): the run can't go on from it"
            )
        elif run.get("writing") == path.name:
            notes.append(f"{path.name} is not whole ({find_checkpoint_fault(path)}): removed")
            remove_unfinished(path)
    return found


def _check_way(folder: Path, run: Mapping[str, Any], found: Path | None) -> None:
    """Raise UsageError for what stands where a run will write that goes on from a checkpoint, and is not its own."""
    stranger = stranger_in_the_way(
        folder, run, checkpoint_step(found) or 0 if found is not None else -1
    )
    if (
        stranger is None
        and found is not None
        and (fault := find_checkpoint_fault(found)) is not None
    ):
        stranger = Stranger(found, f"is not as truetune wrote it ({fault})")
    if stranger is not None:
        raise stranger_error(
            stranger,
            "nothing was changed: restore it or move it elsewhere, and the same command resumes;"
            f" or {ELSEWHERE}",
        )


def _mark_of(checkpoint: Path) -> dict[str, Any] | None:
    """whole.json of a checkpoint; None where there is none that truetune wrote."""
    return (
        read_object(checkpoint / WHOLE_FILE, []) if listed_files(checkpoint) is not None else None
    )
