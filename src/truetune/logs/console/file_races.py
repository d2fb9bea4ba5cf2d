"""Recognises exceptions which say that several processes change the same files at the same time.

A file that is not there is mostly a wrong path, which each process would meet alike. Two things say otherwise: an
exception inside of `shutil.rmtree`, which had just listed what is gone now; and processes that fail in one call that
deletes, renames or makes a file, while another one got through it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from truetune.logs.console.parse_tracebacks import Frame, PrintedException

RACED_TYPES = re.compile(r"^(?:FileNotFoundError|FileExistsError|OSError)$")
RACED_TEXT = re.compile(r"\[Errno (?:2|17|39|66)\]|No such file|File exists|Directory not empty")
TREE_FILE = re.compile(r"(?:^|[\\/])shutil\.py$")
TREE_FUNCTIONS = frozenset(("rmtree", "_rmtree_safe_fd", "_rmtree_unsafe", "_rmtree_safe_fd_step"))
CHANGING_CALL = re.compile(
    r"\b(?:rmtree|unlink|remove|rmdir|removedirs|rename|renames|replace|move|mkdir|makedirs|symlink\w*)\("
)
"""What deletes, renames or makes a file, in a line of the user's code"""


@dataclass(frozen=True, slots=True)
class FileRace:
    """Processes that change the same files at once."""

    call: str
    """The line of code that fails; empty where the output does not print it"""
    place: str
    processes: tuple[str, ...]
    """Those that failed in it, as the output names them"""

    def evidence(self) -> str:
        """The race as a line of evidence."""
        which = f"processes {', '.join(self.processes)}" if len(self.processes) > 1 else "a process"
        call = f" ({self.call})" if self.call else ""
        return (
            f"{which} failed in {self.place}{call}: another process had just deleted or made what it was about to"
            " change"
        )


def find_file_race(raised: PrintedException, others: Sequence[PrintedException]) -> FileRace | None:
    """The race that exceptions tell of; None where a path may simply be wrong.

    Args:
        raised: the exception that ended the run.
        others: what the other processes ended in.
    """
    frame = raised.last_user_frame
    if frame is None or not _is_missing_or_existing_file_error(raised):
        return None
    same = _same_errors_of_other_processes(raised, others, frame)
    processes = tuple(sorted({raised.process, *(other.process for other in same)} - {""}))
    race = FileRace(frame.code.strip()[:120], f"{frame.file}:{frame.line}", processes)
    if _is_race_inside_rmtree(raised) or any(map(_is_race_inside_rmtree, same)):
        return race
    is_change = CHANGING_CALL.search(frame.code) is not None
    return race if is_change and len(processes) > 1 and _one_process_succeeded(processes) else None


def _same_errors_of_other_processes(
    raised: PrintedException, others: Sequence[PrintedException], frame: Frame
) -> list[PrintedException]:
    """The errors of missing or existing files in which other processes ended, in the same line."""
    return [
        other
        for other in others
        if other.process != raised.process
        and _is_missing_or_existing_file_error(other)
        and _failed_in_same_line(other, frame)
    ]


def _is_missing_or_existing_file_error(raised: PrintedException) -> bool:
    """Is it an error of a file that is gone, or that already exists?"""
    return RACED_TYPES.match(raised.type) is not None and RACED_TEXT.search(raised.text) is not None


def _failed_in_same_line(other: PrintedException, frame: Frame) -> bool:
    """Did another process fail in the same line?"""
    theirs = other.last_user_frame
    return theirs is not None and (theirs.file, theirs.line) == (frame.file, frame.line)


def _is_race_inside_rmtree(raised: PrintedException) -> bool:
    """Was something gone that `shutil.rmtree` had just listed, or a folder filled that it had just
    emptied? Its first call on the folder fails alike if there is none, so that the type of the call
    decides.

    Its first check of the folder fails alike where there is none, so that the type of the call decides.
    """
    inner = [
        frame
        for frame in raised.frames
        if TREE_FILE.search(frame.file) and frame.function in TREE_FUNCTIONS
    ]
    if not inner:
        return False
    calls = " ".join(frame.code for frame in inner)
    return "os.unlink(" in calls or "os.rmdir(" in calls or len(inner) > 2


def _one_process_succeeded(processes: Sequence[str]) -> bool:
    """Is the number of a process missing among those that failed? If all fail, the path is wrong."""
    if not all(name.isdecimal() for name in processes):
        return False
    numbers = {int(name) for name in processes}
    return numbers != set(range(len(numbers)))
