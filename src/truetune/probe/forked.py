"""Work on the user's objects in a forked copy of their process, which can't harm the original.

What a law, a collator or a `compute_loss` does there (raises, hangs, crashes, prints, counts, changes weights) happens
to the copy. The copy is killed when its time is over, and when its parent dies.

A copy shares with its original what lies outside memory, so that is taken away from it first: files that are open for
writing, sockets, pipes and terminals become /dev/null, and files that are open for reading are opened again, so that
reading moves no position of the original's. A fork is safe only without a device: after CUDA has begun the audit runs
in the process itself (`truetune.probe.hook`).
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import stat
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from truetune.probe.boundary import RING, Lost, describe

Send = Callable[[dict[str, Any]], None]
UNSAFE_MODULES = ("mpi4py.MPI", "torch_xla", "horovod.torch")
"""Packages whose libraries do not allow a process to be forked"""
DEVICES = ("cuda", "xpu", "npu", "hpu", "musa", "mlu")
REAP_SECONDS = 5.0
"""For a killed copy to be gone; one that waits for a dead network drive may take longer, and is left"""
WANTED_SECONDS = 1.0
"""Between two looks whether the parent still lives"""
PR_SET_PDEATHSIG = 1
"""Of prctl(2): the signal that a process gets when its parent dies"""


class CopyFailed(Lost):
    """The copy failed, took too long, or was ended from outside; the message says which."""


def can_fork() -> bool:
    """Is a forked copy of this process able to compute what the original would?"""
    if not sys.platform.startswith("linux") or any(name in sys.modules for name in UNSAFE_MODULES):
        return False  # macOS: its frameworks abort in a forked process
    torch = sys.modules.get("torch")
    devices = (getattr(torch, name, None) for name in DEVICES)
    return not any(device is not None and _is_initialized(device) for device in devices)


def _is_initialized(device: Any) -> bool:
    ask = getattr(device, "is_initialized", None)
    return bool(ask()) if ask is not None else bool(device.is_available())


def run_in_copy(
    work: Callable[[Send], None], seconds: Callable[[dict[str, Any]], float | None], first: float,
    wanted: Callable[[], bool],
) -> None:  # fmt: skip
    """Run `work(send)` in a copy of this process. Each message that it sends is given to `seconds`, which says how long
    to wait for the next one; None ends the copy. `first` is the time for the first message.

    Raises CopyFailed where the copy ends, or its time is over, before that, or where its result is no longer `wanted`;
    OSError where it can't be made.
    """
    reading, writing = os.pipe()
    process = 0
    state = random.getstate()  # Python draws a new seed in each forked process
    try:
        original = os.getpid()
        with _no_warning(), _no_signals() as mask:
            try:
                process = os.fork()
                if process == 0:
                    _be_copy(work, writing, original, mask, state)
            finally:
                if os.getpid() != original:  # whatever became of it: a copy never goes on as the user's program
                    os._exit(1)
        os.close(writing)
        writing = -1
        _listen(reading, process, seconds, first, wanted)
    finally:
        os.close(reading)
        if writing >= 0:
            os.close(writing)
        if process > 0:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
            _reap(process)


def _listen(
    reading: int, process: int, seconds: Callable[[dict[str, Any]], float | None], first: float,
    wanted: Callable[[], bool],
) -> None:  # fmt: skip
    """Hear the copy out."""
    unread, wait, until = b"", first, time.monotonic() + first
    poll = select.poll()  # `select` fails on high file numbers
    poll.register(reading, select.POLLIN)
    while True:
        left = until - time.monotonic()
        if left <= 0:
            raise CopyFailed(f"the audit took more than {wait:g} s and was abandoned")
        if not poll.poll(min(left, WANTED_SECONDS) * 1000):
            if not wanted():
                raise CopyFailed("nobody waits for the audit any more")
            continue
        read = os.read(reading, 1 << 16)
        if not read:
            raise CopyFailed(f"the audit's process ended early ({_end_of(process)})")
        *lines, unread = (unread + read).split(b"\n")
        for line in lines:
            following = seconds(json.loads(line))
            if following is None:
                return
            wait, until = following, time.monotonic() + following


def _end_of(process: int) -> str:
    """How a copy ended; it is waited for elsewhere."""
    flags = os.WEXITED | os.WNOWAIT | os.WNOHANG
    with suppress(OSError):
        for _ in range(100):
            result = os.waitid(os.P_PID, process, flags)
            if result is not None:
                killed = result.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
                return f"{'signal' if killed else 'exit code'} {result.si_status}"
            time.sleep(0.01)
    return "nobody knows why"


def _reap(process: int) -> None:
    until = time.monotonic() + REAP_SECONDS
    with suppress(OSError):  # the user's program ignores SIGCHLD, or has waited for all of its children
        while os.waitpid(process, os.WNOHANG) == (0, 0) and time.monotonic() < until:
            time.sleep(0.005)


@contextmanager
def _no_signals() -> Iterator[set[signal.Signals]]:
    """No signal arrives in this thread: a copy must not run the user's handlers, nor the original lose its copy."""
    blocked = signal.valid_signals() - {RING}  # the boundary's clock is heard everywhere
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        yield before  # type: ignore[misc]
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _no_warning() -> Iterator[None]:
    """Python 3.12 warns of a fork in a process with threads: the copy runs none of theirs, and is killed if it hangs.

    `catch_warnings` would make warnings of the user's come again that were shown already, so the list is changed.
    """
    if sys.version_info < (3, 12):
        yield
        return
    entry: Any = ("ignore", None, DeprecationWarning, None, 0)
    filters: Any = warnings.filters
    filters.insert(0, entry)
    try:
        yield
    finally:
        with suppress(ValueError):
            filters.remove(entry)


def _be_copy(
    work: Callable[[Send], None], writing: int, original: int, mask: set[signal.Signals], state: Any
) -> None:  # fmt: skip
    """All that the copy does. It does not return, and its caller ends it if it does."""
    code = 1
    try:
        _die_with(original)
        _drop_signal_handlers(mask)
        _drop_files(writing)
        _drop_output()
        random.setstate(state)
        _compute_alone()

        def send(message: dict[str, Any]) -> None:
            os.write(writing, json.dumps(message).encode() + b"\n")

        try:
            work(send)
            code = 0
        except BaseException as error:
            send({"failed": describe(error)})
    finally:
        os._exit(code)


def _die_with(original: int) -> None:
    import ctypes
    import resource

    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != original:  # it died before this was asked for
        os._exit(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _drop_signal_handlers(mask: set[signal.Signals]) -> None:
    """The terminal's Ctrl-C is for the original, which then ends its copy."""
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _drop_files(kept: int) -> None:
    """Nothing that is open in the original is written to, and no position in it moves."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        if number in (kept, nothing):
            continue
        with suppress(OSError):
            _replace_file(number, nothing)


def _replace_file(number: int, nothing: int) -> None:
    import fcntl

    mode = os.fstat(number).st_mode
    flags = fcntl.fcntl(number, fcntl.F_GETFL)
    if stat.S_ISDIR(mode) or (stat.S_ISCHR(mode) and not os.isatty(number)):
        return
    if number in (1, 2) or not stat.S_ISREG(mode) or flags & os.O_ACCMODE == os.O_WRONLY:
        os.dup2(nothing, number, inheritable=False)
        return
    again = os.open(f"/proc/self/fd/{number}", os.O_RDONLY | os.O_CLOEXEC)
    os.lseek(again, os.lseek(number, 0, os.SEEK_CUR), os.SEEK_SET)
    os.dup2(again, number, inheritable=False)
    os.close(again)


def _drop_output() -> None:
    """What user code prints or logs in the copy is lost; the user's own streams, with what they hold, are kept alive
    and never flushed here."""
    import gc
    import logging

    gc.freeze()  # what the original will throw away itself is not thrown away, with its files, by the copy
    globals()["_kept"] = (sys.stdin, sys.stdout, sys.stderr)
    nothing = open(os.devnull, "w")  # noqa: SIM115
    names = ("stdout", "stderr", "__stdout__", "__stderr__")
    vars(sys).update(dict.fromkeys(names, nothing), excepthook=_say_nothing, unraisablehook=_say_nothing)
    threading.excepthook = _say_nothing
    logging.disable(logging.CRITICAL)


def _say_nothing(*_: Any) -> None:
    """Of errors that nobody catches in a copy, its parent hears by other means."""


def _compute_alone() -> None:
    """One thread: the pools of OpenMP and of tokenizers have no threads in a forked process, and wait for them."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
