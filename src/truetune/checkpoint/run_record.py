"""What `truetune train` leaves in its folder: run.json on the run, whole.json in each checkpoint, contract.json.

whole.json is written last, after everything else in the checkpoint has reached the disk: without it, or with a file
that is not as it says, the checkpoint is not whole.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from truetune.checkpoint.files import read_object

RUN, WHOLE, CONTRACT = "run.json", "whole.json", "contract.json"
FORMAT = 1
"""Of run.json and whole.json"""
READ, PLACES, STRETCH = 1 << 28, 64, 1 << 20
"""Files of up to READ bytes are read whole for their digest, larger ones in PLACES stretches"""
KEY = re.compile(r"[0-9a-f]{40}")
STATUSES = ("looking", "training", "interrupted", "failed", "finished")
NUMBERED = re.compile(r"checkpoint-(\d{1,12})")
Listing = dict[str, list[Any]]
"""File -> [bytes, digest]"""


def read_run(folder: Path) -> dict[str, Any]:
    """run.json of a run's folder, or of that of a checkpoint of a run; empty where there is none."""
    places = [folder, *([folder.resolve().parent] if step_of(folder) is not None else [])]
    found = (read_object(place / RUN, []) for place in places)
    return next((run for run in found if run is not None and run.get("format") == FORMAT), {})


def own_run(folder: Path) -> dict[str, Any]:
    """run.json of a folder that truetune trains in; empty where there is none, or it is none that truetune wrote."""
    path = folder / RUN
    run = None if path.is_symlink() else read_object(path, [])
    if run is None or run.get("format") != FORMAT or not KEY.fullmatch(str(run.get("key"))):
        return {}
    return run if isinstance(run.get("inputs"), dict) and run.get("status") in STATUSES else {}


def step_of(folder: Path) -> int | None:
    """The step in the name of a checkpoint's folder."""
    named = NUMBERED.fullmatch(folder.resolve().name)
    return int(named[1]) if named else None


def checkpoints(run: Path) -> list[Path]:
    """The checkpoints of a run by their step, whole or not."""
    numbered = {
        step: path for path in run.glob("checkpoint-*") if (step := step_of(path)) is not None
    }
    return [numbered[step] for step in sorted(numbered)]


def listing(folder: Path, *, below: bool = True) -> Listing:
    """All files of a folder (and of those in it), but for whole.json. Raises OSError."""
    paths = sorted(
        path
        for path in folder.glob("**/*" if below else "*")
        if path.is_file() and path.name != WHOLE
    )
    return {
        path.relative_to(folder).as_posix(): [path.stat().st_size, digest(path)] for path in paths
    }


def digest(path: Path) -> str:
    """blake2b of a file; of large ones, of 64 stretches of 1 MiB that are spread evenly. Raises OSError."""
    found = hashlib.blake2b(digest_size=16)
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= READ:
            while part := file.read(STRETCH):
                found.update(part)
        else:
            for i in range(PLACES):
                file.seek((size - STRETCH) * i // (PLACES - 1))
                found.update(file.read(STRETCH))
    return found.hexdigest()


def damages(folder: Path, files: Any) -> Iterator[str]:
    """How files differ from a listing, one text for each. An entry that is none is skipped."""
    for name, entry in files.items() if isinstance(files, Mapping) else ():
        path = folder / name
        if not isinstance(entry, list) or len(entry) != 2 or not _inside(name):
            continue
        try:
            size = path.stat().st_size
            if size != entry[0]:
                yield f"{name} has {size:,} bytes, {entry[0]:,} were written"
            elif digest(path) != entry[1]:
                yield f"{name} has other contents than were written"
        except OSError:
            yield f"{name} is not there"


def fault_of(checkpoint: Path) -> str | None:
    """Why a checkpoint is not whole; None where it is."""
    mark = read_object(checkpoint / WHOLE, [])
    if mark is None or mark.get("format") != FORMAT:
        return f"it has no {WHOLE}: the run ended while it was written"
    return next(damages(checkpoint, mark.get("files")), None)


def _inside(name: str) -> bool:
    path = Path(name)
    return not path.is_absolute() and ".." not in path.parts
