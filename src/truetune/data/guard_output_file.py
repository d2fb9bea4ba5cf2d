"""Decides when a command may write or replace a single output file.

The rule is that of `guard_output_folder`, for one file:

- It does not stand inside encoded data or a checkpoint.
- It is never an input of the same command; symbolic and hard links are seen through.
- A file that is there is replaced only if it is empty, or its contents say that truetune wrote a file of this form. Any
  other is refused, with its name; there is no option that overrides this for reports.
- A symbolic link stays; what it points to is judged and replaced as if it had been named. Into a terminal, a pipe or
  /dev/null is written as into any; a block device is refused.

What is replaced is there whole, old or new, at every moment.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from truetune.data import write_atomically
from truetune.data.guard_output_folder import refuse_output_inside_own_folder
from truetune.errors import UsageError


class FileForm(NamedTuple):
    """A kind of file that truetune writes."""

    what: str
    """How a message calls it: `a page that truetune wrote`, ..."""
    is_ours: Callable[[Path], bool]
    """Does a file that is there say that truetune wrote it? Only asked for ordinary files that are not empty."""


def refuse_unsafe_output_file(path: Path, form: FileForm, inputs: Iterable[Path] = ()) -> None:
    """Raise UsageError if `path` can't be written, or if a file is there that must not be replaced.

    Args:
        path: the file that is to be written.
        form: what is to be written.
        inputs: files that the same command reads; what is not there is skipped.
    """
    folder = path.resolve().parent
    if not folder.is_dir():
        raise UsageError(f"{path}: can't be written: there is no folder {folder}")
    # Before `stat`: a folder of ours must not get a stranger, whether the file is there or not.
    refuse_output_inside_own_folder(path)
    try:
        # Links are followed: what is replaced in the end is what they point to.
        status = path.stat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"{path}: can't be written: {error.strerror}") from None
    if stat.S_ISDIR(status.st_mode):
        raise UsageError(f"{path}: can't be written: it is a folder; name a file")
    # Terminals, pipes and /dev/null hold nothing that could be lost.
    if stat.S_ISCHR(status.st_mode) or stat.S_ISFIFO(status.st_mode):
        return
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"{path}: can't be written: it is no ordinary file; name another file")
    # By device and inode: a hard link has another name and is the same file.
    if any(_has_same_identity(source, status) for source in inputs):
        raise UsageError(
            f"{path}: this command reads it, and would write over it; name another file"
        )
    if status.st_size and not _was_written_by_truetune(path, form):
        raise UsageError(
            f"{path}: already exists and is not {form.what}; name another file, or remove this one"
        )


def write_output_file(path: Path, body: bytes, form: FileForm, inputs: Iterable[Path] = ()) -> None:
    """Write a file whole or not at all; straight into a terminal or a pipe.

    What is there is judged again, for the work may have taken hours. Raises UsageError, which names the file.
    """
    refuse_unsafe_output_file(path, form, inputs)
    try:
        # A pipe can't be replaced by a rename; it is written into.
        if path.exists() and not path.is_file():
            path.write_bytes(body)
        else:
            write_atomically.write_atomically(path.resolve(), body)
    except OSError as error:
        raise UsageError(
            f"{path}: can't be written: {error.strerror}; make room or name another file"
        ) from None


def make_prefix_test(*heads: bytes) -> Callable[[Path], bool]:
    """A test whether a file starts with one of these bytes."""

    def is_ours(path: Path) -> bool:
        """Does the file start so? Raises OSError."""
        with path.open("rb") as file:
            return file.read(max(map(len, heads))).startswith(heads)

    return is_ours


def _has_same_identity(path: Path, known: os.stat_result) -> bool:
    """Is a file the one whose status is `known`, whatever its name? By device and inode."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return False
    # Only ordinary files: an output into the terminal that also is the input harms nothing.
    return stat.S_ISREG(status.st_mode) and (status.st_dev, status.st_ino) == (
        known.st_dev,
        known.st_ino,
    )


def _was_written_by_truetune(path: Path, form: FileForm) -> bool:
    """Does a file say that truetune wrote it? False where it can't be read."""
    try:
        return form.is_ours(path)
    # What can't be read can't say that it is ours; then it is not replaced.
    except (OSError, ValueError, RecursionError):
        return False
