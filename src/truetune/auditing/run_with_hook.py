"""Runs any command with our hook in each Python process below it, and listens to the trainers inside.

PYTHONPATH carries a `sitecustomize` into every interpreter that the command starts, however deep; the hook does nothing
until a trainer or a loop is about to train. The trade-off: an interpreter that is started without its environment (-I,
-E, a clean env) is not reached, which `waiting` and `reached` make visible.
"""

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

from truetune.auditing.listen_to_processes_and_hold_until_judged import JudgeRun, ProcessListener
from truetune.auditing.temporary_folder_removed_with_process import open_workspace
from truetune.errors import UsageError
from truetune.package import PACKAGE_FOLDER
from truetune.probe.orders_from_launcher_to_hook import HookOrders

HOOK_FOLDER = PACKAGE_FOLDER / "probe" / "hooked"
ORDERS_VARIABLE = "TRUETUNE_ORDERS"
# Chosen, not measured: a reason should be on the terminal before the training's own output buries it.
POLL_INTERVAL_S = 0.5
"""Between two checks for audits that were lost"""
FORWARDED_SIGNALS = ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2")


@dataclass(frozen=True)
class CommandOutcome:
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
    watched_rollouts: int = 0
    """Processes in which a trainer was going to have its first rollouts judged"""
    lost: str = ""
    """Why a training that began was not judged; empty where each was"""
    tracebacks: str = ""
    """Of the Python processes that ended in an exception, the first to end first"""
    printed: str = ""
    """The end of what the last Python process printed that ended without an exception"""


@dataclass
class _LostAudits:
    """The audits that were lost. The first is told at once, and only the first: the rest would say it again."""

    folder: Path
    complain: Callable[[str], None]
    first: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ended: threading.Event = field(default_factory=threading.Event)

    def report_only_first_reason(self, reason: str) -> None:
        """Take a reason; two threads may tell one at the same time."""
        with self._lock:
            if not self.first:
                self.first = reason
                self.complain(f"not judged: {reason}; the run continues")

    def poll_for_loss_reasons(self) -> None:
        """Look for the reasons that processes of the run left by `note_reason_of_missing_audit`."""
        while not self._ended.wait(POLL_INTERVAL_S):
            self.report_new_reasons()

    def report_new_reasons(self) -> None:
        """Tell the reasons that stand in the folder now."""
        for path in sorted(self.folder.glob("lost-*")):
            self.report_only_first_reason(path.read_text(encoding="utf-8", errors="replace"))

    def end(self) -> None:
        """Stop watching; once more, for what came since the last check."""
        self._ended.set()
        self.report_new_reasons()


def run_with_hook(
    command: Sequence[str], orders: HookOrders, judge: JudgeRun, complain: Callable[[str], None]
) -> CommandOutcome:
    """Run `command` with our hook in each Python process below it; `judge` says whether a training may continue.

    `orders` are what the hook is to do, without what a session adds: see `truetune.probe.orders_from_launcher_to_hook`.
    Raises UsageError where the command can't be started.
    """
    with open_hook_session(orders, judge, complain) as session:
        code = _run_command(command, hook_environment(session.orders))
    return session.outcome(code)


@dataclass
class HookSession:
    """The folder and the listener of one run, and what its processes told them."""

    orders: HookOrders
    """For the hook: with the folder, and the listener's address and key"""
    listener: ProcessListener
    losses: _LostAudits
    waiting: int = 0
    own_loops: int = 0
    loops: int = 0
    watched_rollouts: int = 0
    tracebacks: str = ""
    printed: str = ""

    def outcome(self, code: int) -> CommandOutcome:
        """How the run ended, with its exit code."""
        return CommandOutcome(
            code,
            self.listener.reached,
            self.waiting,
            self.own_loops,
            self.loops,
            self.watched_rollouts,
            self.losses.first,
            self.tracebacks,
            self.printed,
        )


@contextmanager
def open_hook_session(
    orders: HookOrders, judge: JudgeRun, complain: Callable[[str], None]
) -> Iterator[HookSession]:
    """Inside, processes that get these orders are listened to."""
    with open_workspace() as folder:
        losses = _LostAudits(folder, complain)
        listener = ProcessListener(folder, judge, complain, losses.report_only_first_reason)
        sent: HookOrders = {
            **orders,
            "folder": str(folder),
            "address": listener.address,
            "authkey": listener.authkey.hex(),
        }
        session = HookSession(sent, listener, losses)
        # In a thread, for this one waits for the command.
        threading.Thread(target=losses.poll_for_loss_reasons, daemon=True).start()
        try:
            yield session
        finally:
            # In this order: closing judges what is left, and may lose it.
            listener.close()
            losses.end()
            session.tracebacks = "\n\n".join(_read_left_files(folder, "ended"))
            session.printed = next(iter([*_read_left_files(folder, "printed")][::-1]), "")
            session.waiting = _count_left_files(folder, "waiting")
            session.own_loops = _count_left_files(folder, "own-loop")
            session.loops = _count_left_files(folder, "loop")
            session.watched_rollouts = _count_left_files(folder, "rollouts")


def _count_left_files(folder: Path, kind: str) -> int:
    """How many processes left a file of this kind."""
    return sum(1 for _ in folder.glob(f"{kind}-*"))


def _read_left_files(folder: Path, kind: str) -> Iterator[str]:
    """The tracebacks (`ended`) or last lines (`printed`) that processes left (`note_end` in truetune/probe/hooked), the
    first to end first."""
    for path in sorted(folder.glob(f"{kind}-*"), key=lambda path: path.stat().st_mtime_ns):
        # newline: a progress bar's returns are kept.
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            yield file.read()


def hook_environment(orders: HookOrders) -> dict[str, str]:
    """The environment of this process, with the hook in front of PYTHONPATH."""
    # In front: an interpreter imports the first sitecustomize alone; ours imports the one that it hides.
    paths = [str(HOOK_FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), ORDERS_VARIABLE: json.dumps(orders)}


def _run_command(command: Sequence[str], variables: dict[str, str]) -> int:
    """Run a command with these variables to its end: its exit code, 128 + n where signal n ended it, as shells have it.

    Raises UsageError where it can't be started.
    """
    try:
        process = subprocess.Popen(list(command), env=variables)
    except OSError as error:
        raise UsageError(f"{command[0]}: can't be started: {error.strerror}") from None
    with _forward_signals(process):
        code = process.wait()
    # Popen gives -n where signal n ended it.
    return code if code >= 0 else 128 - code


@contextmanager
def _forward_signals(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Signals to us go to the command; but not those of the keyboard, which the terminal gives to both."""

    def forward(number: int, frame: Any) -> None:
        if not (
            number in (signal.SIGINT, getattr(signal, "SIGQUIT", None))
            and _is_in_terminal_foreground_group()
        ):
            process.send_signal(number)

    numbers = [getattr(signal, name) for name in FORWARDED_SIGNALS if hasattr(signal, name)]
    before = {number: signal.signal(number, forward) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_in_terminal_foreground_group() -> bool:
    """Are we in the terminal's foreground group, which gets the keyboard's signals?"""
    try:
        return os.tcgetpgrp(sys.__stderr__.fileno() if sys.__stderr__ else 2) == os.getpgrp()
    except (OSError, AttributeError):
        return False
