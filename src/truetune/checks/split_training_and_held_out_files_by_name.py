"""Tells which files of rows are held out from the training by their names: `val.jsonl` beside
`train.jsonl`.

How it works: files are paired by the words of their names, and only where one of them is named as the training. They
are compared with the training rows then, and not counted among them: a row that stands in both is a leak, no copy.

The trade-off: a name is no proof. Files that no format fits stay together, as they were named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from truetune.data.find_data_files import find_data_files_of_paths
from truetune.data.tell_training_files_from_predictions import MAX_FILES, first_row_fits_a_format
from truetune.errors import TruetuneError

TRAINING_NAME = re.compile(r"(?:^|[\W_])(?:train|training|trn)(?:$|[\W_\d])", re.I)
HELD_OUT_NAME = re.compile(
    r"(?:^|[\W_])(?:val|valid|validation|dev|devel|test|tst|eval|evaluation|held_?out|hold_?out)(?:$|[\W_\d])",
    re.I,
)


class PairedFiles(NamedTuple):
    """Files of one data set."""

    training: tuple[str, ...]
    held_out: tuple[str, ...]


def split_training_and_held_out_files(
    paths: Sequence[str], fits: Callable[[str], bool] | None = None
) -> PairedFiles | None:
    """The training files and the held-out files among paths; None where they are not told apart by their names.

    Args:
        paths: files, or folders of them.
        fits: does a file hold rows that are judged? None: those of a known format do.
    """
    files = _local_files_of(paths)
    training = [file for file in files if TRAINING_NAME.search(Path(file).stem)]
    held_out = [
        file
        for file in files
        if file not in training and HELD_OUT_NAME.search(Path(file).stem) is not None
    ]
    if (
        not training
        or not held_out
        or not all(map(fits or first_row_fits_a_format, (*training, *held_out)))
    ):
        return None
    rest = (file for file in files if file not in held_out)
    return PairedFiles(tuple(rest), tuple(held_out))


def _local_files_of(paths: Sequence[str]) -> list[str]:
    """The files of paths on this machine; none where there are too many, or where one can't be told."""
    if any("://" in path for path in paths):
        return []
    try:
        files = [str(source.path) for source in find_data_files_of_paths(paths)]
    except (TruetuneError, OSError):
        return []
    return files if len(files) <= MAX_FILES else []
