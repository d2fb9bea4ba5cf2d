"""Refuses what a rehearsal must not do (writes, connections, programs) by an audit hook of Python, and says which line
of the program wanted it.

The kernel holds a rehearsal (`truetune.confinement`); its refusals name no line and no reason. This hook sees what
Python itself does (`sys.addaudithook`: opens, removals, renames, modes, connections, programs that are started) before
the kernel does, raises a PermissionError that names truetune, and leaves a note for the parent. What a library in C or
Rust does by itself, and what other programs do, it does not see.

Standard library only, and no import that a program of the user's could have replaced: this runs before the program.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Of one process; the first ones tell what happens.
MAX_NOTES = 20
# In the files that are no line of the user's.
LIBRARY_PATHS = (
    "/site-packages/",
    "/dist-packages/",
    "/lib/python",
    "/truetune/probe/",
    "/truetune/rehearsal/",
    "<frozen",
)
# Programs that may be started where Python's hook alone holds: they look, or write where they are told.
READ_ONLY_PROGRAMS = (
    "uname",
    "ldconfig",
    "ldconfig.real",
    "lscpu",
    "nvidia-smi",
    "gcc",
    "cc",
    "ld",
    "objdump",
    "file",
    "which",
    "getconf",
)
READ_ONLY_GIT_COMMANDS = (
    "rev-parse",
    "status",
    "describe",
    "log",
    "diff",
    "branch",
    "remote",
    "version",
    "ls-files",
    "show",
)
Event = tuple[Any, ...]


class Refusal(PermissionError):
    """A rehearsal does not let the program do this."""


def install_write_guard(guard: dict[str, Any]) -> None:
    """Refuse from now on, in this process. It can't be taken off again. `guard` is the launcher's."""
    sys.addaudithook(WriteGuard(guard))


def _words_of_command(command: Any) -> list[str]:
    """A command's words, as `subprocess` takes it: a text or a list."""
    if isinstance(command, str):
        return command.split()
    return [os.fsdecode(word) for word in command or ()]


class WriteGuard:
    """The hook. Called for each event of Python's table of audit events; unknown ones cost a dictionary's look."""

    def __init__(self, guard: dict[str, Any]) -> None:
        self.writable = tuple(guard["writable"])
        self.notes = guard["refused"]
        self.alone = not guard["covered"] and not guard["landlock"]
        self.count = 0
        self.noting = False
        two = self.check_event_with_two_paths
        one = self.check_event_with_one_path
        self.events: dict[str, Callable[[str, Event], None]] = {
            "open": self.check_file_opening,
            "os.remove": one, "os.rmdir": one, "os.mkdir": one, "os.chmod": one, "os.chown": one, "os.lchown": one,
            "os.truncate": one, "os.utime": one, "os.setxattr": one, "os.removexattr": one, "os.chflags": one,
            "os.rename": two, "os.link": two, "os.symlink": self.check_symbolic_link_creation,
            "socket.connect": self.check_socket_connection,
            "socket.bind": self.check_socket_bind,
            "socket.sendto": self.check_socket_connection,
            "socket.sendmsg": self.check_socket_connection,
        }  # fmt: skip
        if not guard["signals"]:
            self.events["os.kill"] = self.check_signal_target
            self.events["os.killpg"] = self.check_signal_target
        if self.alone:
            self.events |= {
                "subprocess.Popen": self.check_program_start,
                "os.exec": self.check_program_start,
                "os.posix_spawn": self.check_program_start,
                "os.system": self.check_program_start,
                "sqlite3.connect": self.check_sqlite_opening,
            }

    def __call__(self, event: str, arguments: Event) -> None:
        check = self.events.get(event)
        if check is not None and not self.noting:
            check(event, arguments)

    def check_file_opening(self, event: str, arguments: Event) -> None:
        """Check an opening of a file: refuse it for writing where that may not be. Known by its flags, or by
        the mode of Python's own `open`.
        """
        path, mode, flags = arguments
        writes = (
            bool(flags & WRITE_FLAGS)
            if isinstance(flags, int)
            else any(letter in (mode or "") for letter in "wax+")
        )
        if writes and not isinstance(path, int):
            self.refuse_path_outside_writable("opens for writing", path, follow=True)

    def check_event_with_one_path(self, event: str, arguments: Event) -> None:
        """Check an event that changes one path. Of the arguments, a folder's descriptor is the last one where
        the call takes any.
        """
        folder = arguments[-1] if event in EVENTS_WITH_FOLDER and len(arguments) > 1 else -1
        self.refuse_path_outside_writable(
            ACT_BY_EVENT[event], arguments[0], folder, follow=event not in EVENTS_ON_LINKS
        )

    def check_event_with_two_paths(self, event: str, arguments: Event) -> None:
        """Check an event with two paths, a move or hard link: both ends must be writable, as a link would give
        a way to write to its source.
        """
        source, target, source_folder, target_folder = arguments
        self.refuse_path_outside_writable(ACT_BY_EVENT[event], source, source_folder)
        self.refuse_path_outside_writable(ACT_BY_EVENT[event], target, target_folder)

    def check_symbolic_link_creation(self, event: str, arguments: Event) -> None:
        """Check the linking of a symbolic link: where it stands counts. What it points to is resolved when it
        is opened.
        """
        self.refuse_path_outside_writable(ACT_BY_EVENT[event], arguments[1], arguments[2])

    def check_socket_connection(self, event: str, arguments: Event) -> None:
        """Check the connecting of a socket: to this machine alone, by the loopback or a writable Unix socket."""
        opened, address = arguments[0], arguments[-1]
        if address is None:
            return
        if opened.family == socket.AF_UNIX:
            self.check_unix_socket_path("connects to", address)
        elif opened.family in (socket.AF_INET, socket.AF_INET6) and not is_loopback(address[0]):
            self.refuse("connects to", f"{address[0]}:{address[1]}")

    def check_socket_bind(self, event: str, arguments: Event) -> None:
        """Check the binding of a socket: a Unix socket is a file that is made; ports are free to listen at."""
        opened, address = arguments
        if opened.family == socket.AF_UNIX:
            self.check_unix_socket_path("listens at", address)

    def check_unix_socket_path(self, act: str, address: Any) -> None:
        """Check a Unix socket by its path; abstract ones (Linux) have none."""
        path = os.fsdecode(address) if isinstance(address, bytes | str) else ""
        if path and not path.startswith("\0"):
            self.refuse_path_outside_writable(act, path, follow=True)

    def check_signal_target(self, event: str, arguments: Event) -> None:
        """Check signalling: only to this process and those that it started; signal 0 only asks whether there
        is one.
        """
        process, number = arguments
        if number and not is_this_process_or_child(abs(process)):
            self.refuse("sends a signal to", f"process {process}")

    def check_program_start(self, event: str, arguments: Event) -> None:
        """Check the starting of a program: Python itself carries this hook; of others only those that write
        nothing.
        """
        if event == "os.system":
            words = os.fsdecode(arguments[0]).split()
        else:
            words = _words_of_command(arguments[1])
            # The program that is executed, whatever the command calls itself.
            words[:1] = [os.fsdecode(arguments[0] or words[0])]
        name = os.path.basename(words[0]) if words else ""
        # With -S, -I or -E Python would not import the hook, and the child would stand unguarded.
        if name.startswith("python") and not any(word in words for word in ("-S", "-I", "-E")):
            return
        if name in READ_ONLY_PROGRAMS or (
            name == "git" and len(words) > 1 and words[1] in READ_ONLY_GIT_COMMANDS
        ):
            return
        self.refuse("starts", " ".join(words[:4]))

    def check_sqlite_opening(self, event: str, arguments: Event) -> None:
        """Check the opening of a SQLite database, whose file is opened in C without an `open` event."""
        path = os.fsdecode(arguments[0])
        if path not in ("", ":memory:") and "mode=memory" not in path:
            self.refuse_path_outside_writable(
                "opens for writing", path.removeprefix("file:").partition("?")[0], follow=True
            )

    def refuse_path_outside_writable(
        self, act: str, path: Any, folder: Any = -1, *, follow: bool = False
    ) -> None:
        """Refuse where the path is outside of what may be written. `follow`: the act goes through a link at its end."""
        if path is None:
            return
        text = f"/proc/self/fd/{path}" if isinstance(path, int) else os.fsdecode(path)
        follow = follow or isinstance(path, int)
        if isinstance(folder, int) and folder >= 0 and not os.path.isabs(text):
            text = os.path.join(f"/proc/self/fd/{folder}", text)
        if follow:
            place = os.path.realpath(text)
        else:
            above, name = os.path.split(text.rstrip("/") or "/")
            place = os.path.join(os.path.realpath(above), name)
        # What is still there after resolving it is a pipe or a socket of this process.
        if not place.startswith("/proc/self/fd/") and not self.is_writable(place):
            self.refuse(act, place)

    def is_writable(self, place: str) -> bool:
        """Is a resolved path one of the folders that may be written, or in one?"""
        return any(place == root or place.startswith(root + "/") for root in self.writable)

    def refuse(self, act: str, subject: str) -> None:
        """Refuse an act: note it for the launcher, and raise Refusal."""
        line = current_line_of_user_code()
        if self.count < MAX_NOTES:
            self.count += 1
            self.noting = True
            try:
                note = json.dumps({"act": act, "subject": subject, "line": line}).encode()
                place = os.path.join(self.notes, f"{os.getpid()}-{self.count:02}.json")
                number = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                os.write(number, note)
                os.close(number)
            # A full disk or a folder that is gone.
            except OSError:  # the refusal itself matters
                pass
            finally:
                self.noting = False
        raise Refusal(
            errno.EACCES,
            f"truetune: a rehearsal keeps the program from this ({line} {act})",
            subject,
        )


ACT_BY_EVENT = {
    "os.remove": "removes", "os.rmdir": "removes", "os.mkdir": "makes", "os.chmod": "changes the mode of",
    "os.chown": "changes the owner of", "os.lchown": "changes the owner of", "os.truncate": "truncates",
    "os.utime": "changes the times of", "os.setxattr": "changes the attributes of",
    "os.removexattr": "changes the attributes of", "os.chflags": "changes the flags of", "os.rename": "moves",
    "os.link": "links", "os.symlink": "makes",
}  # fmt: skip
EVENTS_WITH_FOLDER = ("os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.chown", "os.utime")
EVENTS_ON_LINKS = ("os.remove", "os.rmdir", "os.mkdir", "os.lchown")


def is_loopback(host: str) -> bool:
    """Does this address mean the own machine?"""
    return host in ("", "localhost", "::1", "0.0.0.0", "::") or host.startswith(
        ("127.", "::ffff:127.")
    )


def is_this_process_or_child(process: int) -> bool:
    """Is it this process, or one that it started?"""
    while process > 1:
        if process == os.getpid():
            return True
        try:
            with open(f"/proc/{process}/stat", "rb") as file:
                process = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return False
    return False


def current_line_of_user_code() -> str:
    """The line of the user's own code that we are in: file:line; the program's name where there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not any(part in name for part in LIBRARY_PATHS):
            return f"{os.path.relpath(name) if os.path.isabs(name) else name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else "the program"
