"""Runs work on the user's objects in a forked copy of their process, which can't harm the original.

What a law, a collator or a `compute_loss` does there (raises, hangs, crashes, prints, counts, changes weights) happens
to the copy. The copy is killed when its time is over, and when its parent dies.

A copy shares with its original what lies outside memory, so that is taken away from it first: files that are open for
writing, sockets, pipes and terminals become /dev/null, and files that are open for reading are opened again, so that
reading moves no position of the original's. A fork is safe only without a device: after CUDA has begun the audit runs
in the process itself (`truetune.probe.trainer_hook`).
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

from truetune.probe.contain_own_failures_in_user_program import CLOCK_SIGNAL, Lost, describe_error

Send = Callable[[dict[str, Any]], None]
# Packages whose libraries do not allow a process to be forked: MPI aborts, XLA and Horovod wait for their threads.
UNSAFE_MODULES = ("mpi4py.MPI", "torch_xla", "horovod.torch")
# Modules of torch for devices. After one has begun, a forked process can't use it (CUDA raises, others hang).
DEVICE_MODULES = ("cuda", "xpu", "npu", "hpu", "musa", "mlu")
# For a killed copy to be gone; one that waits for a dead network drive may take longer, and is left.
REAP_SECONDS = 5.0
# Between two checks whether the parent still lives. Half would cost wake-ups; twice as long, a run that was interrupted
# keeps its copy for as long.
POLL_SECONDS = 1.0
# Without a tick of processor time, before its record is written. Chosen, not measured: a copy that waits for a lock
# waits for ever, and one that reads a slow drive gets ticks now and then. With half, a stalled network drive would be
# taken for a lock; with twice as much, the run waits for nothing that long.
STALL_SECONDS = 30.0
# Memory that the original shares with others, and that a copy gets a copy of. Chosen, not measured: 1 GiB is more than
# loaders and counters share; a data set held in shared memory is beyond it, and the audit is then not made.
MAX_SHARED_BYTES = 1 << 30
# Of mmap(2), on x86-64 and arm64: at this very address.
MAP_FIXED = 0x10
# Of prctl(2): the signal that a process gets when its parent dies.
PR_SET_PDEATHSIG = 1


class CopyFailed(Lost):
    """The copy failed, took too long, or was ended from outside; the message says which."""


def can_fork() -> bool:
    """Is a forked copy of this process able to compute what the original would?"""
    if not sys.platform.startswith("linux") or any(name in sys.modules for name in UNSAFE_MODULES):
        return False  # macOS: its frameworks abort in a forked process
    torch = sys.modules.get("torch")
    devices = (getattr(torch, name, None) for name in DEVICE_MODULES)
    return not any(device is not None and _is_initialized(device) for device in devices)


def _is_initialized(device: Any) -> bool:
    """Is a device of torch initialized in this process? Where it can't say: is it available?"""
    ask = getattr(device, "is_initialized", None)
    return bool(ask()) if ask is not None else bool(device.is_available())


def run_in_copy(
    work: Callable[[Send], None],
    seconds: Callable[[dict[str, Any]], float | None],
    first: float,
    wanted: Callable[[], bool],
) -> None:
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
        with _hold_back_sigchld_of_copy():
            try:
                with _suppress_fork_warning(), _block_signals_in_thread() as mask:
                    try:
                        process = os.fork()
                        if process == 0:
                            _run_as_copy(work, writing, original, mask, state)
                    finally:
                        if os.getpid() != original:  # a copy never continues as the user's program
                            os._exit(1)
                os.close(writing)
                writing = -1
                _read_messages_until_copy_ends(reading, process, seconds, first, wanted)
            finally:
                if process > 0:
                    with suppress(OSError):
                        os.kill(process, signal.SIGKILL)
                    _reap_copy(process)
    finally:
        os.close(reading)
        if writing >= 0:
            os.close(writing)


def _read_messages_until_copy_ends(
    reading: int,
    process: int,
    seconds: Callable[[dict[str, Any]], float | None],
    first: float,
    wanted: Callable[[], bool],
) -> None:
    """Read the messages of the copy until no more is to be waited for. Raises CopyFailed where it fails or
    takes too long.

    Until it says that its record is written (`recorded`) it computes. A copy that does not is waiting for what a copy
    has not got: a lock that another thread held at the fork, or that thread itself.
    """
    unread, wait, until = b"", first, time.monotonic() + first
    computes = True
    activity = _Activity(process)
    poll = select.poll()  # `select` fails on high file numbers
    poll.register(reading, select.POLLIN)
    while True:
        left = until - time.monotonic()
        if left <= 0:
            raise CopyFailed(f"the audit took more than {wait:g} s and was abandoned")
        if not poll.poll(min(left, POLL_SECONDS) * 1000):
            if not wanted():
                raise CopyFailed("nobody waits for the audit any more")
            if computes:
                activity.check()
            continue
        read = os.read(reading, 1 << 16)
        if not read:
            raise CopyFailed(f"the audit's process ended early ({_describe_end_of_copy(process)})")
        *lines, unread = (unread + read).split(b"\n")
        for line in lines:
            message = json.loads(line)
            computes = computes and "recorded" not in message
            activity.since = time.monotonic()
            following = seconds(message)
            if following is None:
                return
            wait, until = following, time.monotonic() + following


class _Activity:
    """Whether a process computes: since when its processor time has not grown."""

    def __init__(self, process: int) -> None:
        self.process = process
        self.ticks, self.since = _processor_time(process), time.monotonic()

    def check(self) -> None:
        """Check that the process computes. Raises CopyFailed where it did nothing for STALL_SECONDS."""
        ticks = _processor_time(self.process)
        if ticks != self.ticks:
            self.ticks, self.since = ticks, time.monotonic()
        elif time.monotonic() - self.since > STALL_SECONDS:
            raise CopyFailed(
                f"the audit did nothing for {STALL_SECONDS:g} s and was abandoned; it waits for"
                " a lock or a thread that a copy of the process does not have"
            )


def _processor_time(process: int) -> int:
    """The processor time of a process and of those that it has started, in the kernel's ticks."""
    ticks = 0
    with suppress(OSError, ValueError, IndexError):
        with open(f"/proc/{process}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        ticks = sum(
            int(field) for field in fields[11:15]
        )  # utime, stime, and those of children that ended
        with open(f"/proc/{process}/task/{process}/children") as file:
            ticks += sum(_processor_time(int(child)) for child in file.read().split())
    return ticks


def _describe_end_of_copy(process: int) -> str:
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


def _reap_copy(process: int) -> None:
    """Wait for the end of a copy that was killed, so that it leaves no zombie."""
    until = time.monotonic() + REAP_SECONDS
    with suppress(
        OSError
    ):  # the user's program ignores SIGCHLD, or has waited for all of its children
        while os.waitpid(process, os.WNOHANG) == (0, 0) and time.monotonic() < until:
            time.sleep(0.005)


@contextmanager
def _hold_back_sigchld_of_copy() -> Iterator[None]:
    """The user's handler of SIGCHLD does not run for the copy, which the user's program has not started.

    What came for a child of the program's own meanwhile is raised again afterwards.
    """
    handler = signal.getsignal(signal.SIGCHLD)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []
    signal.signal(signal.SIGCHLD, lambda number, frame: seen.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, handler)
        if len(seen) > 1 or _has_ended_child():
            signal.raise_signal(signal.SIGCHLD)


def _has_ended_child() -> bool:
    """Has a child of this process ended that was not waited for yet?"""
    with suppress(OSError):
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return False


@contextmanager
def _block_signals_in_thread() -> Iterator[set[signal.Signals]]:
    """No signal arrives in this thread: a copy must not run the user's handlers, nor the original lose its copy."""
    blocked = signal.valid_signals() - {CLOCK_SIGNAL}  # the boundary's clock is heard everywhere
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        yield before  # type: ignore[misc]
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _suppress_fork_warning() -> Iterator[None]:
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


def _run_as_copy(
    work: Callable[[Send], None], writing: int, original: int, mask: set[signal.Signals], state: Any
) -> None:
    """Run the work as the copy, with all that a copy needs. It does not return, and its caller ends it if
    it does.
    """
    code = 1
    try:
        _die_with_original(original)
        _drop_signal_handlers(mask)
        _detach_files_from_original(writing)
        _drop_output_of_user_code()
        random.setstate(state)
        _compute_with_one_thread()

        def send(message: dict[str, Any]) -> None:
            os.write(writing, json.dumps(message).encode() + b"\n")

        try:
            _copy_shared_memory_of_original()
            work(send)
            code = 0
        except BaseException as error:
            send({"failed": describe_error(error)})
    finally:
        # Never `sys.exit`: handlers and `finally` blocks of the user's program would run in the copy, too.
        os._exit(code)


def _die_with_original(original: int) -> None:
    """End this copy when the original dies, even by SIGKILL, which no handler sees."""
    import ctypes
    import resource

    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != original:  # it died before this was asked for
        os._exit(1)
    # A copy that crashes writes no core file into the user's folder.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _drop_signal_handlers(mask: set[signal.Signals]) -> None:
    """Put signal handlers of the program off in the copy, and ignore Ctrl-C there: the original ends its
    copy.
    """
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _detach_files_from_original(kept: int) -> None:
    """Nothing that is open in the original is written to, and no position in it moves."""
    # A write into the run's log or a socket of its tracker would appear twice.
    nothing = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        if number in (kept, nothing):
            continue
        with suppress(OSError):
            _replace_file(number, nothing)


def _copy_shared_memory_of_original() -> None:
    """What the original shares with others (`share_memory_`, `multiprocessing.Value`) becomes a copy of it, which is
    shared with the copy's own children alone. Else a counter of the user's would count the copy's batches, too.
    """
    import ctypes
    import mmap

    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    with open("/proc/self/maps") as file:
        lines = file.read().splitlines()
    shared = []
    for line in lines:
        span, rights, *_ = line.split(None, 5)
        if rights[1] == "w" and rights[3] == "s":
            start, end = (int(text, 16) for text in span.split("-"))
            shared.append((start, end - start))
    size = sum(length for _, length in shared)
    if size > MAX_SHARED_BYTES:
        raise Lost(
            f"the program shares {size >> 20:,} MiB of memory with others; at most"
            f" {MAX_SHARED_BYTES >> 20:,} can be copied for an audit"
        )
    flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | MAP_FIXED
    for start, length in shared:
        held = ctypes.string_at(start, length)
        # At the same address, so that all pointers of numpy and torch into it stay right. Without this a
        # `multiprocessing.Value` that counts batches counts those of the copy
        # (`test_shared_memory_is_not_shared_with_the_copy`).
        if libc.mmap(start, length, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0) != start:
            raise OSError(ctypes.get_errno(), "shared memory can't be copied")
        ctypes.memmove(start, held, length)


def _replace_file(number: int, nothing: int) -> None:
    """Replace a file that the copy shares with the original by one of its own.

    What is written goes to `nothing`; a file that is read is opened again at the same place. Folders and devices stay.
    """
    import fcntl

    mode = os.fstat(number).st_mode
    flags = fcntl.fcntl(number, fcntl.F_GETFL)
    if stat.S_ISDIR(mode) or (stat.S_ISCHR(mode) and not os.isatty(number)):
        return
    if number in (1, 2) or not stat.S_ISREG(mode) or flags & os.O_ACCMODE == os.O_WRONLY:
        os.dup2(nothing, number, inheritable=False)
        return
    # A forked descriptor shares its position with the original: reading here would move what the run reads next.
    again = os.open(f"/proc/self/fd/{number}", os.O_RDONLY | os.O_CLOEXEC)
    os.lseek(again, os.lseek(number, 0, os.SEEK_CUR), os.SEEK_SET)
    os.dup2(again, number, inheritable=False)
    os.close(again)


def _drop_output_of_user_code() -> None:
    """What user code prints or logs in the copy is lost; the user's own streams, with what they hold, are kept alive
    and never flushed here."""
    import gc
    import logging

    gc.freeze()  # what the original will throw away itself is not thrown away, with its files, by the copy
    # Without a reference the streams would be collected, and flush what they hold into the run's output.
    globals()["_kept"] = (sys.stdin, sys.stdout, sys.stderr)
    nothing = open(os.devnull, "w")  # noqa: SIM115
    names = ("stdout", "stderr", "__stdout__", "__stderr__")
    vars(sys).update(
        dict.fromkeys(names, nothing),
        excepthook=_ignore_uncaught_errors,
        unraisablehook=_ignore_uncaught_errors,
    )
    threading.excepthook = _ignore_uncaught_errors
    logging.disable(logging.CRITICAL)


def _ignore_uncaught_errors(*_: Any) -> None:
    """Say nothing of errors that nobody catches in a copy: its parent hears of them by other means."""


def _compute_with_one_thread() -> None:
    """Compute with one thread: the pools of OpenMP and of tokenizers have no threads in a forked process,
    and wait for them.
    """
    # tokenizers also warns of a fork, on the user's terminal, unless this is set.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
