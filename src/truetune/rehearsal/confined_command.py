"""Confines a rehearsal's command, and reads what was refused to it.

Each process of the command notes its refusals in the work folder, one file a process, for the processes share nothing
else; they are read when the command has ended.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from truetune.confinement import confined_launcher
from truetune.errors import UsageError
from truetune.probe.rehearsal_hook import FAILURE_PREFIX

# A loop may be refused the same kind of act a thousand times; the first lines tell what to change.
MAX_SHOWN_REFUSALS = 5
"""Refusals that are shown, of each kind once"""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One thing that the program was kept from."""

    act: str
    """opens for writing, removes, connects to, ..."""
    subject: str
    """The path or address"""
    line: str
    """The line of the program, file:line"""


@dataclass(frozen=True, slots=True)
class Refusals:
    """All that Python's hook refused in the command's processes."""

    refusals: tuple[Refusal, ...]
    failure: str
    """Why the hook ended a process; empty where none did"""

    def lines(self) -> Iterator[str]:
        """One line for each of the first refusals."""
        for refusal in self.refusals[:MAX_SHOWN_REFUSALS]:
            yield f"kept from the program: {refusal.line} {refusal.act} {refusal.subject}"
        if len(self.refusals) > MAX_SHOWN_REFUSALS:
            yield f"and {len(self.refusals) - MAX_SHOWN_REFUSALS} more acts were kept from it"


def confine_command(command: Sequence[str], work: Path, *, python_only: bool) -> list[str]:
    """The command line that runs a command confined to `work`. Raises UsageError where there is no
    such program.

    Raises UsageError where there is no such program.
    """
    # Said here, in our words: behind the launcher it would look as if the confinement had failed.
    if shutil.which(command[0]) is None:
        raise UsageError(f"{command[0]}: can't be started: no such program")
    return confined_launcher.confined_command_line(command, [work], python_only=python_only)


def read_refusals(work: Path) -> Refusals:
    """Read the refusals that the processes noted in `work`, in the order of their ids; the same
    refusal once.
    """
    folder = work / "refused"
    # A dictionary keeps the order and each refusal once.
    notes = (json.loads(path.read_text()) for path in sorted(folder.glob("*.json")))
    refusals = dict.fromkeys(Refusal(note["act"], note["subject"], note["line"]) for note in notes)
    failures = [path.read_text() for path in sorted(folder.glob(f"{FAILURE_PREFIX}-*"))]
    # The first failure alone: the others are of processes that ended because of it.
    return Refusals(tuple(refusals), failures[0] if failures else "")
