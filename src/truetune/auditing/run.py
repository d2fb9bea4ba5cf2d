"""Run any command with an ear for the trainers inside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truetune.auditing.listen import Ear, Judge
from truetune.auditing.workspace import workspace
from truetune.errors import UsageError
from truetune.package import PACKAGE_FOLDER

HOOKED = PACKAGE_FOLDER / "probe" / "hooked"
ORDERS = "TRUETUNE_ORDERS"
LOOK_SECONDS = 0.5
"""Between two looks for audits that were lost"""
PASSED_ON = ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2")


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    """Its own exit code; 128 + n where signal n ended it, as shells say"""
    reached: int
    """Trainings that began, whether or not they could be looked at"""
    waiting: int
    """Processes that imported transformers' Trainer"""
    own_loops: int = 0
    """Processes in which a loop of the user's own trained a model of transformers"""
    loops: int = 0
    """Processes of a rehearsal whose own loop was ended before it trained a miniature"""
    lost: str = ""
    """Why a training that began was not judged; empty where each was"""
    tracebacks: str = ""
    """Of the Python processes that ended in an exception, the first to end first"""
    printed: str = ""
    """The end of what the last Python process printed that ended without an exception"""


@dataclass
class _Losses:
    """The audits that were lost. The first is told at once, and only the first: the rest would say it again."""

    folder: Path
    complain: Callable[[str], None]
    first: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ended: threading.Event = field(default_factory=threading.Event)

    def tell(self, reason: str) -> None:
        with self._lock:
            if not self.first:
                self.first = reason
                self.complain(f"not judged: {reason}; the run continues")

    def watch(self) -> None:
        """Look for reasons that processes of the run have left (`truetune.probe.boundary.note_loss`)."""
        while not self._ended.wait(LOOK_SECONDS):
            self.look()

    def look(self) -> None:
        for path in sorted(self.folder.glob("lost-*")):
            self.tell(path.read_text(encoding="utf-8", errors="replace"))

    def end(self) -> None:
        self._ended.set()
        self.look()


def run(
    command: Sequence[str], orders: dict[str, Any], judge: Judge, complain: Callable[[str], None]
) -> Outcome:
    """Run `command` with our hook in each Python process below it; `judge` says whether a training may go on.

    `orders` are what the hook is to do: mode, batches, laws, canary, ...; see `truetune.probe.hook`.
    Raises UsageError where the command can't be started.
    """
    with hooked(orders, judge, complain) as session:
        code = _wait(command, environment(session.orders))
    return session.outcome(code)


@dataclass
class Session:
    """A folder, an ear, and what they heard of the processes of one run."""

    orders: dict[str, Any]
    """For the hook: with the folder, and the ear's address and key"""
    ear: Ear
    losses: _Losses
    waiting: int = 0
    own_loops: int = 0
    loops: int = 0
    tracebacks: str = ""
    printed: str = ""

    def outcome(self, code: int) -> Outcome:
        """How the run ended, with its exit code."""
        return Outcome(
            code,
            self.ear.reached,
            self.waiting,
            self.own_loops,
            self.loops,
            self.losses.first,
            self.tracebacks,
            self.printed,
        )


@contextmanager
def hooked(
    orders: dict[str, Any], judge: Judge, complain: Callable[[str], None]
) -> Iterator[Session]:
    """Inside, processes that get these orders are listened to."""
    with workspace() as folder:
        losses = _Losses(folder, complain)
        ear = Ear(folder, judge, complain, losses.tell)
        sent = {
            **orders,
            "folder": str(folder),
            "address": ear.address,
            "authkey": ear.authkey.hex(),
        }
        session = Session(sent, ear, losses)
        threading.Thread(target=losses.watch, daemon=True).start()
        try:
            yield session
        finally:
            ear.close()
            losses.end()
            session.tracebacks = "\n\n".join(_left_by(folder, "ended"))
            session.printed = next(iter([*_left_by(folder, "printed")][::-1]), "")
            session.waiting = _left_count(folder, "waiting")
            session.own_loops = _left_count(folder, "own-loop")
            session.loops = _left_count(folder, "loop")


def _left_count(folder: Path, kind: str) -> int:
    """How many processes left a file of this kind."""
    return sum(1 for _ in folder.glob(f"{kind}-*"))


def _left_by(folder: Path, kind: str) -> Iterator[str]:
    """The tracebacks (`ended`) or last lines (`printed`) that processes left (`note_end` in truetune/probe/hooked), the
    first to end first."""
    for path in sorted(folder.glob(f"{kind}-*"), key=lambda path: path.stat().st_mtime_ns):
        with path.open(
            encoding="utf-8", errors="replace", newline=""
        ) as file:  # a progress bar's returns are kept
            yield file.read()


def environment(orders: dict[str, Any]) -> dict[str, str]:
    """Ours, with the hook in front of PYTHONPATH."""
    paths = [str(HOOKED), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), ORDERS: json.dumps(orders)}


def _wait(command: Sequence[str], variables: dict[str, str]) -> int:
    try:
        process = subprocess.Popen(list(command), env=variables)
    except OSError as error:
        raise UsageError(f"{command[0]}: can't be started: {error.strerror}") from None
    with _passing_on(process):
        code = process.wait()
    return code if code >= 0 else 128 - code


@contextmanager
def _passing_on(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Signals to us go to the command; but not those of the keyboard, which the terminal gives to both."""

    def forward(number: int, frame: Any) -> None:
        if not (number in (signal.SIGINT, getattr(signal, "SIGQUIT", None)) and _at_the_keyboard()):
            process.send_signal(number)

    numbers = [getattr(signal, name) for name in PASSED_ON if hasattr(signal, name)]
    before = {number: signal.signal(number, forward) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _at_the_keyboard() -> bool:
    try:
        return os.tcgetpgrp(sys.__stderr__.fileno() if sys.__stderr__ else 2) == os.getpgrp()
    except (OSError, AttributeError):
        return False
