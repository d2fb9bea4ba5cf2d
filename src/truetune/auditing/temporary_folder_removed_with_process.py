"""A temporary folder that does not outlive its process, however that ends.

`finally` does not run after SIGKILL. So each folder holds a marker file that its process keeps locked, and:

- a guard process, the folder's only other user, waits for the end of its owner and removes the folder then;
- whoever makes a new one first removes those whose owner has gone (the guard may be killed too).

Only a folder of this name and owner that holds our marker is ever removed.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

if sys.platform != "win32":
    import fcntl

FOLDER_PREFIX = "truetune-"
MARKER_NAME = "truetune-workspace"
MARKER_TEXT = (
    b"A temporary folder of truetune. It is removed when the process that holds the lock on this"
    b" file has ended.\n"
)


@contextmanager
def open_workspace(*, guard: bool = True) -> Iterator[Path]:
    """A new empty folder (but for its marker); gone afterwards. Folders that were left behind are removed first.

    `guard` starts a process that removes it where this one is killed; without, the next workspace does.
    Raises OSError where there is no room for a folder.
    """
    remove_abandoned_workspaces()
    folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
    held: list[int] = []
    try:
        held.append(_lock_marker(folder))
        if guard and sys.platform != "win32":
            held.append(_start_guard_and_return_pipe(folder))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for number in held:  # the lock, and the pipe at whose end the guard waits
            os.close(number)


def open_workspace_until_exit() -> Path:
    """A workspace for a record that is read as long as this process lives: it is removed when Python ends.

    There is no guard process: this is called inside the user's process. After SIGKILL the next workspace removes it.
    Raises OSError where there is no room for a folder.
    """
    stack = ExitStack()
    folder = stack.enter_context(open_workspace(guard=False))
    atexit.register(stack.close)
    return folder


def remove_abandoned_workspaces() -> None:
    """Remove the workspaces of this user whose processes have gone."""
    if sys.platform == "win32":
        return
    with suppress(OSError):
        for entry in os.scandir(tempfile.gettempdir()):
            if (
                entry.name.startswith(FOLDER_PREFIX)
                and entry.is_dir(follow_symlinks=False)
                and _is_left_behind(entry)
            ):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_left_behind(entry: os.DirEntry[str]) -> bool:
    """Is it ours, and nobody's any more? A marker that is not whole yet is being written."""
    with suppress(OSError):
        if entry.stat(follow_symlinks=False).st_uid != os.getuid():
            return False
        marker = os.open(
            os.path.join(entry.path, MARKER_NAME), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        )
        try:
            # The kernel frees a lock with its process, however that ends: who gets it finds nobody's folder.
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return os.read(marker, len(MARKER_TEXT) + 1) == MARKER_TEXT
        finally:
            os.close(marker)
    return False


def _lock_marker(folder: Path) -> int:
    """The marker, locked; its number must stay open."""
    marker = os.open(folder / MARKER_NAME, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    if sys.platform != "win32":
        fcntl.flock(marker, fcntl.LOCK_EX)
    os.write(marker, MARKER_TEXT)
    return marker


def _start_guard_and_return_pipe(folder: Path) -> int:
    """A process that reads from a pipe whose other end only this process holds (it is returned): it reads the end when
    this one ends, or closes it."""
    reading, writing = os.pipe()  # both are closed in programs that are started
    child = os.fork()
    if child == 0:
        try:
            os.setsid()  # a signal to the group of a terminal or a job is not for it
            if os.fork() == 0:  # twice, so that nobody has to wait for it
                _remove_folder_at_end_of_pipe(folder, reading)
        finally:
            os._exit(0)
    os.close(reading)
    os.waitpid(child, 0)
    return writing


def _remove_folder_at_end_of_pipe(folder: Path, reading: int) -> None:
    """The guard: wait for the end of the pipe, then remove the folder."""
    # No signal may end it before its owner's end, as one to all processes of a job would.
    for number in signal.valid_signals():
        with suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    for name in (
        os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else map(str, range(1024))
    ):
        if int(name) != reading:  # also the lock and the writing end of the pipe
            with suppress(OSError):
                os.close(int(name))
    os.read(reading, 1)
    shutil.rmtree(folder, ignore_errors=True)
