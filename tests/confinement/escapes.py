"""Ways out: each writes, removes, moves, truncates or sends something outside, and is tried in a process of its own.

`python -m tests.confinement.escapes` reads a JSON object from the variable ESCAPES: `outside` is a folder of the files
`kept` and `other` and the folder `sub` with `inner`; `port`, `datagram_port` and `socket` are listened at; `process`
waits; `skipped` are names of ways; `native` says whether those are tried that Python's own hook does not see.

It prints a JSON object: the name of each way, and what came of it ("done", or the error). "done" says nothing yet:
under an overlay most are done, elsewhere.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import multiprocessing
import os
import pathlib
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from typing import Any

TARGETS: dict[str, Any] = json.loads(os.environ.get("ESCAPES", "{}"))
OUTSIDE = pathlib.Path(TARGETS.get("outside", "/nowhere/at/all"))
PORT, DATAGRAM_PORT = TARGETS.get("port", 0), TARGETS.get("datagram_port", 0)
SOCKET = TARGETS.get("socket", "")
PROCESS = TARGETS.get("process", 0)
KEPT, OTHER, SUB, NEW = OUTSIDE / "kept", OUTSIDE / "other", OUTSIDE / "sub", OUTSIDE / "new"
LIBC = ctypes.CDLL(None, use_errno=True)
WAYS: dict[str, Callable[[], Any]] = {}
NATIVE: set[str] = set()
"""Ways that Python's own hook does not see"""


def way(act: Callable[[], Any]) -> Callable[[], Any]:
    WAYS[act.__name__] = act
    return act


def native(act: Callable[[], Any]) -> Callable[[], Any]:
    NATIVE.add(act.__name__)
    return way(act)


def checked(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=20)


@way
def open_for_writing() -> None:
    KEPT.open("w").write("x")


@way
def open_for_appending() -> None:
    KEPT.open("a").write("x")


@way
def open_for_both() -> None:
    KEPT.open("r+b").write(b"x")


@way
def make_a_file() -> None:
    NEW.write_text("x")


@way
def touch() -> None:
    KEPT.touch()


@way
def os_open() -> None:
    os.write(os.open(KEPT, os.O_WRONLY), b"x")


@way
def os_open_to_truncate() -> None:
    os.open(KEPT, os.O_RDONLY | os.O_TRUNC)


@way
def unnamed_file_that_is_linked() -> None:
    number = os.open(OUTSIDE, os.O_TMPFILE | os.O_RDWR)
    os.link(f"/proc/self/fd/{number}", NEW)


@way
def beside_a_folder_descriptor() -> None:
    folder = os.open(OUTSIDE, os.O_RDONLY)
    os.write(os.open("kept", os.O_WRONLY, dir_fd=folder), b"x")


@way
def remove_beside_a_folder_descriptor() -> None:
    os.remove("kept", dir_fd=os.open(OUTSIDE, os.O_RDONLY))


@way
def by_the_root_of_proc() -> None:
    pathlib.Path(f"/proc/self/root{KEPT}").write_text("x")


@way
def by_the_working_folder_of_proc() -> None:
    os.chdir(OUTSIDE)
    pathlib.Path("/proc/self/cwd/kept").write_text("x")


@way
def by_the_root_of_another_process() -> None:
    pathlib.Path(f"/proc/{PROCESS}/root{KEPT}").write_text("x")


@way
def reopened_by_its_descriptor() -> None:
    number = os.open(KEPT, os.O_RDONLY)
    pathlib.Path(f"/proc/self/fd/{number}").write_text("x")


@way
def by_a_link_from_within() -> None:
    link = pathlib.Path(tempfile.mkdtemp(), "link")
    link.symlink_to(KEPT)
    link.write_text("x")


@way
def by_a_folder_link_from_within() -> None:
    link = pathlib.Path(tempfile.mkdtemp(), "link")
    link.symlink_to(OUTSIDE)
    (link / "kept").unlink()


@way
def by_a_hard_link_from_within() -> None:
    link = pathlib.Path(tempfile.mkdtemp(), "link")
    os.link(KEPT, link)
    link.write_text("x")


@way
def by_dots() -> None:
    pathlib.Path(tempfile.gettempdir(), *[".."] * 20, *KEPT.parts[1:]).write_text("x")


@way
def remove() -> None:
    os.remove(KEPT)


@way
def remove_a_tree() -> None:
    shutil.rmtree(OUTSIDE)


@way
def remove_a_folder() -> None:
    (SUB / "inner").unlink()
    SUB.rmdir()


@way
def rename() -> None:
    KEPT.rename(NEW)


@way
def replace_with_own() -> None:
    own = pathlib.Path(tempfile.mkdtemp(), "own")
    own.write_text("x")
    os.replace(own, KEPT)


@way
def move_inside() -> None:
    shutil.move(str(KEPT), tempfile.gettempdir())


@way
def make_folders() -> None:
    os.makedirs(NEW / "a" / "b")


@way
def make_a_link() -> None:
    NEW.symlink_to(KEPT)


@way
def make_a_hard_link() -> None:
    os.link(KEPT, NEW)


@way
def make_a_pipe() -> None:
    os.mkfifo(NEW)


@way
def truncate() -> None:
    os.truncate(KEPT, 0)


@way
def change_the_mode() -> None:
    KEPT.chmod(0o777)


@way
def change_the_mode_by_a_descriptor() -> None:
    os.fchmod(os.open(KEPT, os.O_RDONLY), 0o777)


@way
def change_the_times() -> None:
    os.utime(KEPT, (1, 1))


@way
def change_the_owner() -> None:
    os.chown(KEPT, 12345, 12345)


@way
def set_an_attribute() -> None:
    os.setxattr(KEPT, "user.escape", b"x")


@way
def copy_over() -> None:
    shutil.copy2(OTHER, KEPT)


@way
def copy_a_tree() -> None:
    shutil.copytree(SUB, NEW)


@way
def extract_a_tar() -> None:
    path = pathlib.Path(tempfile.mkdtemp(), "made.tar")
    with tarfile.open(path, "w") as archive:
        archive.add(__file__, "kept")
    with tarfile.open(path) as archive:
        archive.extractall(OUTSIDE, filter="data")


@way
def extract_a_zip() -> None:
    path = pathlib.Path(tempfile.mkdtemp(), "made.zip")
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(__file__, "kept")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(OUTSIDE)


@way
def database() -> None:
    with sqlite3.connect(NEW) as made:
        made.execute("create table t (x)")


@way
def map_into_memory() -> None:
    with KEPT.open("r+b") as file:
        mmap.mmap(file.fileno(), 1)[0:1] = b"x"


@way
def send_a_file() -> None:
    source, target = os.open(OTHER, os.O_RDONLY), os.open(KEPT, os.O_WRONLY)
    os.sendfile(target, source, 0, 4)


@way
def copy_a_range() -> None:
    os.copy_file_range(os.open(OTHER, os.O_RDONLY), os.open(KEPT, os.O_WRONLY), 4)


@way
def temporary_file_there() -> None:
    with tempfile.NamedTemporaryFile(dir=OUTSIDE, delete=False) as file:
        file.write(b"x")


@way
def another_process() -> None:
    process = multiprocessing.get_context("spawn").Process(target=KEPT.write_text, args=("x",))
    process.start()
    process.join(20)


@way
def forked_process() -> None:
    child = os.fork()
    if child == 0:
        try:
            KEPT.write_text("x")
        finally:
            os._exit(0)
    os.waitpid(child, 0)


@way
def forked_and_executed() -> None:
    child = os.fork()
    if child == 0:
        try:
            os.execvp("sh", ["sh", "-c", f"echo x > {KEPT}"])
        finally:
            os._exit(1)
    os.waitpid(child, 0)


@way
def orphan() -> None:
    """It outlives its parents, in a session of its own."""
    run("sh", "-c", f"setsid sh -c 'echo x > {KEPT}; rm {OTHER}' &")


@way
def shell() -> None:
    os.system(f"rm -f {KEPT}; echo x > {NEW}")


@way
def program_that_removes() -> None:
    run("rm", "-rf", str(SUB))


@way
def program_that_copies() -> None:
    run("cp", str(OTHER), str(KEPT))


@way
def program_that_moves() -> None:
    run("mv", str(KEPT), str(NEW))


@way
def program_that_truncates() -> None:
    run("truncate", "-s", "0", str(KEPT))


@way
def program_that_edits() -> None:
    run("sed", "-i", "s/./x/g", str(KEPT))


@way
def program_that_downloads() -> None:
    run("curl", "-s", "-m", "5", "-T", str(KEPT), f"http://127.0.0.1:{PORT}/")


@way
def python_without_our_hook() -> None:
    run(sys.executable, "-I", "-S", "-c", f"open({str(KEPT)!r}, 'w').write('x')")


@way
def git_push() -> None:
    folder = tempfile.mkdtemp()
    run("git", "init", "-q", "--bare", str(NEW))
    run("git", "-C", folder, "clone", "-q", str(NEW), ".")


@way
def git_push_over_http() -> None:
    run("git", "ls-remote", f"http://127.0.0.1:{PORT}/x.git")


@way
def spawned_by_posix() -> None:
    os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", f"echo x > {KEPT}"], dict(os.environ)), 0)


@native
def c_library_open() -> None:
    number = LIBC.open(os.fsencode(KEPT), os.O_WRONLY | os.O_TRUNC)
    checked(number)
    LIBC.write(number, b"x", 1)


@native
def c_library_unlink() -> None:
    checked(LIBC.unlink(os.fsencode(KEPT)))


@native
def c_library_rename() -> None:
    checked(LIBC.rename(os.fsencode(KEPT), os.fsencode(NEW)))


@native
def c_library_chmod() -> None:
    checked(LIBC.chmod(os.fsencode(KEPT), 0o777))


@native
def c_library_system() -> None:
    LIBC.system(f"echo x > '{KEPT}'".encode())


@native
def exchange_two_files() -> None:
    checked(LIBC.renameat2(-100, os.fsencode(KEPT), -100, os.fsencode(OTHER), 2))


@native
def punch_a_hole() -> None:
    number = LIBC.open(os.fsencode(KEPT), os.O_RDWR)
    checked(number)
    checked(LIBC.fallocate(number, 3, ctypes.c_long(0), ctypes.c_long(4)))


@native
def mount_over() -> None:
    checked(LIBC.mount(b"tmpfs", os.fsencode(OUTSIDE), b"tmpfs", ctypes.c_ulong(0), None))


@native
def unmount() -> None:
    checked(LIBC.umount2(os.fsencode(OUTSIDE.parents[-2]), 2))
    KEPT.write_text("x")


@native
def namespaces_within() -> None:
    """More rights, inside a new namespace: what lies over the folder can't be taken off there, either."""
    checked(LIBC.unshare(0x10020000))
    for parent in OUTSIDE.parents:
        LIBC.umount2(os.fsencode(parent), 2)
        LIBC.mount(None, os.fsencode(parent), None, ctypes.c_ulong(0x1020), None)
    KEPT.write_text("x")


@native
def numpy_saves() -> None:
    import numpy as np

    np.save(NEW, np.zeros(3))
    np.memmap(KEPT, mode="r+")[:] = 1


@native
def safetensors_saves() -> None:
    import numpy as np
    from safetensors.numpy import save_file

    save_file({"x": np.zeros(3)}, KEPT)


@native
def arrow_saves() -> None:
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table({"x": [1]}), KEPT)


@native
def input_output_ring() -> None:
    """io_uring would open files for us."""
    number = LIBC.syscall(425, 8, ctypes.create_string_buffer(120))
    checked(number)


@way
def connect() -> None:
    socket.create_connection(("127.0.0.1", PORT), 5).sendall(b"escaped")


@way
def datagram() -> None:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(
        b"escaped", ("127.0.0.1", DATAGRAM_PORT)
    )


@way
def opened_by_sending() -> None:
    socket.socket().sendto(b"escaped", socket.MSG_FASTOPEN, ("127.0.0.1", PORT))


@way
def multipath() -> None:
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
    opened.connect(("127.0.0.1", PORT))
    opened.sendall(b"escaped")


@way
def unix_socket() -> None:
    opened = socket.socket(socket.AF_UNIX)
    opened.connect(SOCKET)
    opened.sendall(b"escaped")


@way
def abstract_socket() -> None:
    opened = socket.socket(socket.AF_UNIX)
    opened.connect("\0" + SOCKET)
    opened.sendall(b"escaped")


@way
def signal_to_another_process() -> None:
    os.kill(PROCESS, signal.SIGTERM)


@way
def trace_another_process() -> None:
    checked(LIBC.ptrace(16, PROCESS, 0, 0))


def tried(act: Callable[[], Any]) -> str:
    """What came of it, in a child: nothing of one way is left for the next."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            act()
            answer = "done"
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writer, answer.encode()[:4000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


def try_all(*names: str) -> dict[str, str]:
    """Those of these names, or all that are not to be skipped."""
    skipped = {*TARGETS["skipped"]} | (set() if TARGETS["native"] else NATIVE)
    return {
        name: tried(act)
        for name, act in WAYS.items()
        if name in (names or WAYS) and name not in skipped
    }


if __name__ == "__main__":
    print(json.dumps(try_all()))
