"""Tells whether a program has trained before with its settings as they are, by what lies beside it.

A name that a release no longer takes stops the call that is given it. Where the program has logged, saved or answered
since, a release ran that takes it. The release that is installed beside truetune decides nothing: many keep truetune
in an environment of its own. Looked at are the outputs that a notebook keeps, and of a script the files beside it and
in two levels of folders below, what notes, comments and docstrings beside it tell of a run, and answers in the folder
above; names decide where they can, because checkpoints are large.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path

from truetune.parsing.input_limits import MODEL_FILE, InputLimitError
from truetune.parsing.read_files_within_limits import read_bytes_within_limit
from truetune.settings.release_pins import Pins
from truetune.settings.run_spec import Severity

ANSWER_FILE = re.compile(
    r"(?:predictions?|preds|generations|answers|replies|responses|outputs?|samples)[\w.-]*\.(?:jsonl?|csv|txt)",
    re.I,
)
"""What a trained model wrote. A project that keeps its training in a folder has them beside that folder."""
RUN_OUTPUT_FILE = re.compile(
    r"checkpoint-\d+|trainer_state\.json|adapter_model\.(?:safetensors|bin)|model.*\.safetensors"
    rf"|adapter_config\.json|train(?:er|ing)_(?:log\.jsonl|args\.bin)|all_results\.json"
    rf"|(?:consolidated|pytorch_model).*\.(?:pth?|bin)|.*\.gguf|wandb-summary\.json"
    rf"|events\.out\.tfevents.*|{ANSWER_FILE.pattern}",
    re.I,
)
"""What a run writes, by its name"""
TRAINER_OUTPUT = re.compile(
    r"""\\?['"](?:loss|train_loss|train_runtime)\\?['"]: |Training Loss|\b\d+/\d+ \[\d+:\d+"""
)
"""Records that trainers print, also as a notebook holds them, and a progress bar that has moved"""
RUN_REPORT = re.compile(
    r"\b(?:eval|train|val|validation|final|test)[ _-]loss\b[^.\n\d]{0,20}\d+\.\d+"
    r"|\bloss\b[^.\n\d]{0,30}\d+\.\d+\s*(?:->|→|to)\s*\d+\.\d+"
    r"|\b(?:took|ran for|finished (?:in|after))\W{1,3}(?:about |some )?\d+(?:[.:]\d+)? ?(?:h|min|hours?|minutes?)\b"
    r"|\b\d+(?:\.\d+)? ?(?:s/it|it/s)\b",
    re.I,
)
"""What people write down of a run: its losses, how long it took"""
COMMENT_OR_DOCSTRING = re.compile(r'''"""[\s\S]{1,4000}?"""|^[ \t]*#.*$|[ \t]#[ \t].*$''', re.M)
"""Docstrings and comments of a script"""
LOG_SUFFIXES = (".log", ".out", ".err", ".txt")
NOTE_SUFFIXES = (".md", ".txt", ".sh", ".py", ".yaml", ".yml", ".sbatch", ".slurm")
# Chosen, not measured: one misses checkpoints, three would walk through the files of a data set or a W&B run as well.
MAX_FOLDER_DEPTH = 2
"""`out/run-1/checkpoint-500` stands two levels below the script"""
# Chosen, not measured: it bounds the time of one check; what lies beyond is as if it were not there (a warning).
MAX_ENTRIES = 400
"""Files and folders that are looked at; projects have fewer, folders of data more"""


def severity_of_name_removed_in_later_release(
    pins: Pins, package: str, changes: Iterable[tuple[str, str]], path: str
) -> Severity:
    """The severity of a name that later releases refuse: an error if a file asks for such a
    release, otherwise a warning, and a note if the program has run since.

    An error where a file asks for such a release. Where none names a release, a warning; and a note where the program
    has run since, so that its release still takes the name.

    Args:
        pins: the releases that the files ask for.
        package: the one whose name it is.
        changes: the last release that takes each name, and the first that does not.
        path: the program.
    """
    if pins.of(package) is not None:
        if pins.asks_for_commit(package):
            return "info"
        is_past = any(
            pins.age_of_asked_releases(package, last, gone) == "current" for last, gone in changes
        )
        return "error" if is_past else "warning"
    return "info" if has_script_trained_before(path) else "warning"


def has_script_trained_before(path: str) -> bool:
    """Does what lies beside a program show that it trained?"""
    file = Path(path)
    try:
        changed = file.stat().st_mtime_ns
    except OSError:
        return False
    return _has_script_trained_before_cached(file, changed)


@lru_cache(maxsize=64)
def _has_script_trained_before_cached(file: Path, _changed: int) -> bool:
    """Does what lies beside a program show that it trained? Cached, because every setting of a program asks it."""
    if file.suffix == ".ipynb":
        return _holds_training_records(file)
    if any(
        ANSWER_FILE.fullmatch(entry.name) for entry in _folder_entries_or_none(file.parent.parent)
    ):
        return True
    return any(
        RUN_OUTPUT_FILE.fullmatch(entry.name) is not None
        or (entry.name.endswith(LOG_SUFFIXES) and _holds_training_records(Path(entry.path)))
        or (entry.name.endswith(NOTE_SUFFIXES) and _describes_run_in_words(Path(entry.path)))
        for entry in islice(
            _folder_entries_nearest_first(file.parent, MAX_FOLDER_DEPTH), MAX_ENTRIES
        )
    )


def _folder_entries_nearest_first(folder: Path, levels: int) -> Iterator[os.DirEntry[str]]:
    """The entries of a folder, and then those of its folders."""
    entries = list(_folder_entries_or_none(folder))
    yield from entries
    for entry in entries if levels else ():
        if entry.is_dir() and not entry.name.startswith("."):
            yield from _folder_entries_nearest_first(Path(entry.path), levels - 1)


def _folder_entries_or_none(folder: Path) -> Iterator[os.DirEntry[str]]:
    """The entries of a folder; none if it can't be read."""
    try:
        yield from sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return


def _holds_training_records(file: Path) -> bool:
    """Does a text hold records of a training?"""
    return TRAINER_OUTPUT.search(_read_text_or_empty(file)) is not None


def _describes_run_in_words(file: Path) -> bool:
    """Does a note, or the comments of a script, describe how a run went?"""
    text = _read_text_or_empty(file)
    told = [text] if file.suffix in (".md", ".txt") else COMMENT_OR_DOCSTRING.findall(text)
    return any(RUN_REPORT.search(part) is not None for part in told)


def _read_text_or_empty(file: Path) -> str:
    """The text of a file; empty where it cannot be read or is too large."""
    try:
        return read_bytes_within_limit(file, MODEL_FILE).decode("utf-8", "replace")
    except (OSError, InputLimitError):
        return ""
