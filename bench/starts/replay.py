"""Run the commands of a start as a user would, and read from what they print whether the cause is named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.bugs.warm import QUIET
from bench.starts.start import Start
from tests.parts.shelf import Missing

Verdict = Literal["led to the cause", "not led", "skipped"]
LIMIT = 300
"""Seconds that one command may take"""


@dataclass(frozen=True, slots=True)
class Step:
    """One command, and what it printed."""

    command: str
    exit_code: int | None
    """None: it was stopped after LIMIT seconds"""
    output: str
    seconds: float
    named: tuple[str, ...]
    """Those of the start's `leads_to` that stand in the output"""


@dataclass(frozen=True, slots=True)
class Replay:
    """A start, replayed."""

    start: Start
    verdict: Verdict
    steps: tuple[Step, ...] = ()
    note: str = ""
    """Why it was skipped"""


def replay(start: Start) -> Replay:
    """Type the commands of a start one after the other until one names the cause."""
    steps: list[Step] = []
    with tempfile.TemporaryDirectory(prefix="start-") as scratch:
        folder = Path(scratch)
        try:
            start.lay_out(folder)
            for command in start.commands:
                steps.append(_typed(start, command, folder))
                if steps[-1].named:
                    return Replay(start, "led to the cause", tuple(steps))
        except Missing as reason:
            return Replay(start, "skipped", tuple(steps), str(reason))
    return Replay(start, "not led", tuple(steps))


def _typed(start: Start, command: str, folder: Path) -> Step:
    """One command, run in the folder. Raises Missing."""
    words = start.words(command)
    if words[0] == "truetune":
        words = [sys.executable, "-m", "truetune", *words[1:]]
    # Wide lines, so that a name is never broken in two, and no colours.
    surroundings = os.environ | QUIET | {"COLUMNS": "400", "NO_COLOR": "1"}
    began = time.perf_counter()
    process = subprocess.Popen(
        words,
        cwd=folder,
        env=surroundings,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    ended = process.returncode if process.returncode >= 0 else None
    return Step(command, ended, output, time.perf_counter() - began, _words_found_in(start, output))


def _words_found_in(start: Start, output: str) -> tuple[str, ...]:
    """Which of the words that state the cause are in an output."""
    text = " ".join(output.split()).casefold()
    return tuple(words for words in start.leads_to if " ".join(words.split()).casefold() in text)
