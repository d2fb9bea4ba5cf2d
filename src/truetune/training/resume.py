"""Whose a folder is: a new run's, one's that goes on there, or one's that has ended there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
from accelerate import PartialState
from accelerate.utils import broadcast_object_list

from truetune.checkpoint.files import read_object
from truetune.checkpoint.run_record import RUN, WHOLE, checkpoints, damages, fault_of, read_run
from truetune.errors import UsageError
from truetune.training.record import differences, versions

LOCK = ".lock"
ELSEWHERE = "name another folder with -o"


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
        lock = filelock.FileLock(folder / LOCK, timeout=0).acquire()
    except filelock.Timeout:
        raise UsageError(f"{folder}: another process trains there; wait for its end, or {ELSEWHERE}") from None
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
    before = read_run(folder)
    if not before:
        strangers = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
        if strangers:
            raise UsageError(f"{folder} holds {strangers[0]} and no {RUN}: it is no run of truetune's; {ELSEWHERE}")
        return Claim(folder, {}, None, False, ())
    if not isinstance(before.get("inputs"), dict) or "status" not in before:
        raise UsageError(f"{folder / RUN}: is not what truetune wrote; {ELSEWHERE}")
    different = differences(inputs, before["inputs"])
    if different and before["status"] == "looking" and not checkpoints(folder):
        return Claim(folder, {}, None, False, ("an earlier run with other settings never began here: its record goes",))
    if different:
        raise UsageError(f"{folder} holds a run ({before['status']}) that differs: {'; '.join(different)}; {ELSEWHERE}")
    if before["status"] == "finished" and not any(damages(folder, before["files"])):
        return Claim(folder, before, None, True, ())
    notes: list[str] = []
    found = _last_whole(folder, notes)
    if found is not None:
        notes += _renewed(before.get("versions", {}))
    return Claim(folder, before, found, False, tuple(notes))


def _renewed(then: Mapping[str, str]) -> list[str]:
    """What to say where libraries were exchanged since the run began."""
    changed = [f"{name} {then[name]} -> {now}" for name, now in versions().items() if then.get(name, now) != now]
    return [f"since the run began: {', '.join(changed)}; losses may differ in their last digits"] if changed else []


def _last_whole(folder: Path, notes: list[str]) -> Path | None:
    """The last whole checkpoint. Those that are not are put aside: removed, or where a file changed later, renamed."""
    found = None
    for path in reversed(checkpoints(folder)):
        mark = read_object(path / WHOLE, [])
        if mark is None:
            notes.append(f"{path.name} is not whole ({fault_of(path)}): removed")
            shutil.rmtree(path)
        elif found is None and (fault := fault_of(path)) is not None:
            aside = path.with_name(f"damaged-{path.name}")
            notes.append(f"{path.name} is damaged ({fault}): renamed to {aside.name}")
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)
        elif found is None and mark["resumes"]:
            found = path
        elif found is None:
            notes.append(f"{path.name} holds weights alone (save_only_model): the run can't go on from it")
    return found
