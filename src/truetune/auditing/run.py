"""Run any command with an ear for the trainers inside it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import truetune
from truetune.auditing.listen import Ear, Judge
from truetune.errors import UsageError

HOOKED = Path(truetune.__file__).parent / "probe" / "hooked"
ORDERS = "TRUETUNE_ORDERS"
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
    loops: int = 0
    """Processes of a rehearsal whose own loop was ended before it trained a miniature"""


def run(command: Sequence[str], orders: dict[str, Any], judge: Judge, complain: Callable[[str], None]) -> Outcome:
    """Run `command` with our hook in each Python process below it; `judge` says whether a training may go on.

    `orders` are what the hook is to do: mode, batches, laws, canary, ...; see `truetune.probe.hook`.
    Raises UsageError where the command can't be started.
    """
    folder = Path(tempfile.mkdtemp(prefix="truetune-"))
    try:
        ear = Ear(folder, judge, complain)
        sent = {**orders, "folder": str(folder), "address": ear.address, "authkey": ear.authkey.hex()}
        try:
            code = _wait(command, environment(sent))
        finally:
            ear.close()
        return Outcome(code, ear.reached, *(sum(1 for _ in folder.glob(f"{kind}-*")) for kind in ("waiting", "loop")))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
