"""Reads what `truetune train` leaves in its folder, and checks that checkpoints are whole.

whole.json is written last, after everything else in the checkpoint has reached the disk: without it, or with a file
that is not as it says, the checkpoint is not whole. The trade-off: large files are digested in stretches, so that a
resume does not read hundreds of gigabytes; a change between the stretches is not seen, a cut or swapped file is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from truetune.checkpoint.read_weight_files_and_faults import read_json_object

RUN_FILE, WHOLE_FILE, CONTRACT_FILE = "run.json", "whole.json", "contract.json"
RECORD_FORMAT = 1
"""Of run.json and whole.json"""
# Chosen, not measured: 256 MiB are digested in less than a second; of larger files 64 MiB are.
MAX_WHOLE_BYTES, SAMPLED_PLACES, STRETCH_BYTES = 1 << 28, 64, 1 << 20
"""Files of up to READ bytes are read whole for their digest, larger ones in PLACES stretches"""
KEY_PATTERN = re.compile(r"[0-9a-f]{40}")
STATUSES = ("looking", "training", "interrupted", "failed", "finished")
UNFINISHED_STATUSES = ("looking", "training")
"""Statuses of a run that may make more checkpoints"""
CHECKPOINT_PATTERN = re.compile(r"checkpoint-(\d{1,12})")
FileListing = dict[str, list[Any]]
"""File -> [bytes, digest]"""


def read_run(folder: Path) -> dict[str, Any]:
    """run.json of a run's folder, or of that of a checkpoint of a run; empty where there is none."""
    places = [
        folder,
        *([folder.resolve().parent] if step_of_checkpoint_name(folder) is not None else []),
    ]
    digest = (read_json_object(place / RUN_FILE, []) for place in places)
    return next(
        (run for run in digest if run is not None and run.get("format") == RECORD_FORMAT), {}
    )


def read_run_written_by_truetune(folder: Path) -> dict[str, Any]:
    """run.json of a folder that truetune trains in; empty where there is none, or it is none that truetune wrote."""
    path = folder / RUN_FILE
    # What stands behind a link may be of another folder, in which nothing may be removed.
    run = None if path.is_symlink() else read_json_object(path, [])
    if (
        run is None
        or run.get("format") != RECORD_FORMAT
        or not KEY_PATTERN.fullmatch(str(run.get("key")))
    ):
        return {}
    return run if isinstance(run.get("inputs"), dict) and run.get("status") in STATUSES else {}


def step_of_checkpoint_name(folder: Path) -> int | None:
    """The step in the name of a checkpoint's folder; None where the name has none."""
    named = CHECKPOINT_PATTERN.fullmatch(folder.resolve().name)
    return int(named[1]) if named else None


def list_checkpoints(run: Path) -> list[Path]:
    """The folders of a run's checkpoints in the order of their step, whole or not."""
    numbered = {
        step: path
        for path in run.glob("checkpoint-*")
        if (step := step_of_checkpoint_name(path)) is not None
    }
    return [numbered[step] for step in sorted(numbered)]


def list_files_with_digests(folder: Path, *, below: bool = True) -> FileListing:
    """All files of a folder (and of those in it), but for whole.json. Raises OSError."""
    # Not whole.json, which holds the listing and so can't be in it.
    paths = sorted(
        path
        for path in folder.glob("**/*" if below else "*")
        if path.is_file() and path.name != WHOLE_FILE
    )
    return {
        path.relative_to(folder).as_posix(): [path.stat().st_size, digest_file(path)]
        for path in paths
    }


def digest_file(path: Path) -> str:
    """A digest (blake2b) of a file; of large ones, of 64 stretches of 1 MiB that are spread evenly.
    Raises OSError.
    """
    digest = hashlib.blake2b(digest_size=16)
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= MAX_WHOLE_BYTES:
            while part := file.read(STRETCH_BYTES):
                digest.update(part)
        else:
            for i in range(SAMPLED_PLACES):
                file.seek((size - STRETCH_BYTES) * i // (SAMPLED_PLACES - 1))
                digest.update(file.read(STRETCH_BYTES))
    return digest.hexdigest()


def describe_files_unlike_listing(folder: Path, files: Any) -> Iterator[str]:
    """How files differ from a listing, one text for each. An entry that is none is skipped."""
    for name, entry in files.items() if isinstance(files, Mapping) else ():
        path = folder / name
        if not isinstance(entry, list) or len(entry) != 2 or not _stays_in_folder(name):
            continue
        try:
            size = path.stat().st_size
            if size != entry[0]:
                yield f"{name} has {size:,} bytes, {entry[0]:,} were written"
            elif digest_file(path) != entry[1]:
                yield f"{name} has other contents than were written"
        except OSError:
            yield f"{name} is not there"


def find_checkpoint_fault(checkpoint: Path) -> str | None:
    """Why a checkpoint is not whole; None where it is."""
    mark = read_json_object(checkpoint / WHOLE_FILE, [])
    if mark is None or mark.get("format") != RECORD_FORMAT:
        return f"it has no {WHOLE_FILE}: the run ended while it was written"
    return next(describe_files_unlike_listing(checkpoint, mark.get("files")), None)


def _stays_in_folder(name: str) -> bool:
    """Does a listed name stay in its folder? A listing may come from anywhere."""
    path = Path(name)
    return not path.is_absolute() and ".." not in path.parts
