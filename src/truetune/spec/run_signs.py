"""Signs of a run: does what lies beside a program show that it got past its own settings?

A name that a release no longer takes stops the call that is given it. Where the program has logged, saved or answered
since, another release ran than the one that is installed beside truetune. Looked at are the outputs that a notebook
keeps, and of a script the files beside it and in two levels of folders below, and answers in the folder above; names
decide where they can, because checkpoints are large.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path

from packaging.version import Version

from truetune.parsing.bounded_files import read_bounded
from truetune.parsing.limits import MODEL_FILE, InputLimitError
from truetune.spec.pins import Pins, installed_release

ANSWERS = re.compile(r"(?:predictions?|preds|generations|answers)[\w.-]*\.(?:jsonl?|csv|txt)", re.I)
"""What a trained model wrote. A project that keeps its training in a folder has them beside that folder."""
SAVED = re.compile(
    r"checkpoint-\d+|trainer_state\.json|adapter_model\.(?:safetensors|bin)|model.*\.safetensors"
    rf"|events\.out\.tfevents.*|{ANSWERS.pattern}",
    re.I,
)
"""What a run writes, by its name"""
LOGGED = re.compile(
    r"""\\?['"](?:loss|train_loss|train_runtime)\\?['"]: |Training Loss|\b\d+/\d+ \[\d+:\d+"""
)
"""Records that trainers print, also as a notebook holds them, and a progress bar that has moved"""
LOGS = (".log", ".out", ".txt")
LEVELS = 2
"""`out/run-1/checkpoint-500` stands two levels below the script"""
MAX_ENTRIES = 400
"""Files and folders that are looked at; projects have fewer, folders of data more"""


def is_surely_past(pins: Pins, package: str, last: str, gone: str, path: str) -> bool:
    """Is it sure that a release after a change runs a program?

    By what is asked for; else by what is installed here, unless the program has gone past the change before.
    """
    if pins.of(package) is not None:
        return pins.age(package, last, gone) == "current"
    release = installed_release(package)
    return release is not None and release >= Version(gone) and not has_run(path)


def has_run(path: str) -> bool:
    """Does what lies beside a program show that it trained?"""
    file = Path(path)
    try:
        changed = file.stat().st_mtime_ns
    except OSError:
        return False
    return _has_run(file, changed)


@lru_cache(maxsize=64)
def _has_run(file: Path, _changed: int) -> bool:
    """Kept, because every setting of a program asks it."""
    if file.suffix == ".ipynb":
        return _has_records(file)
    if any(ANSWERS.fullmatch(entry.name) for entry in _entries(file.parent.parent)):
        return True
    return any(
        SAVED.fullmatch(entry.name) is not None
        or (entry.name.endswith(LOGS) and _has_records(Path(entry.path)))
        for entry in islice(_entries_below(file.parent, LEVELS), MAX_ENTRIES)
    )


def _entries_below(folder: Path, levels: int) -> Iterator[os.DirEntry[str]]:
    """The entries of a folder, and then those of its folders."""
    entries = list(_entries(folder))
    yield from entries
    for entry in entries if levels else ():
        if entry.is_dir() and not entry.name.startswith("."):
            yield from _entries_below(Path(entry.path), levels - 1)


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        yield from sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return


def _has_records(file: Path) -> bool:
    """Does a text hold records of a training?"""
    try:
        text = read_bounded(file, MODEL_FILE).decode("utf-8", "replace")
    except (OSError, InputLimitError):
        return False
    return LOGGED.search(text) is not None
