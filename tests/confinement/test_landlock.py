"""What Landlock holds, tried from inside a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from truetune.confinement import landlock

pytestmark = pytest.mark.skipif(
    landlock.landlock_version() < 3, reason="this kernel's Landlock is older"
)

TRY = """
import os, socket, subprocess, sys
from truetune.confinement import landlock

inside, outside = sys.argv[1:]

def refused(act, *args):
    try:
        act(*args)
    except OSError:
        return True
    return False
"""


def inside_a_process(body: str, tmp_path: Path) -> Path:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    outside.joinpath("kept").write_text("as it was")
    done = subprocess.run(
        [sys.executable, "-c", TRY + body, inside, outside], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert [path.name for path in outside.iterdir()] == ["kept"]
    assert outside.joinpath("kept").read_text() == "as it was"
    return inside


def test_nothing_is_written_outside(tmp_path: Path) -> None:
    inside = inside_a_process(
        """
landlock.confine_writes([inside, "/dev/null"])
kept = outside + "/kept"
assert open(kept).read() == "as it was"
assert refused(open, kept, "a")
assert refused(open, outside + "/new", "w")
assert refused(os.remove, kept)
assert refused(os.rename, kept, inside + "/kept")
assert refused(os.link, kept, inside + "/kept")
assert refused(os.truncate, kept, 0)
assert refused(os.mkdir, outside + "/folder")
assert refused(os.symlink, kept, outside + "/link")
os.symlink(kept, inside + "/link")
assert refused(open, inside + "/link", "w")
assert refused(open, f"/proc/self/root{kept}", "w")
assert subprocess.run(["sh", "-c", f"rm -f {kept}; echo x >> {kept}"], stderr=-3).returncode
os.mkdir(inside + "/folder")
open(inside + "/file", "w").write("x")
os.rename(inside + "/file", inside + "/folder/file")
open("/dev/null", "w").write("x")
""",
        tmp_path,
    )
    assert inside.joinpath("folder", "file").read_text() == "x"


def test_reading_too(tmp_path: Path) -> None:
    inside_a_process(
        """
import encodings.idna
landlock.confine_writes([inside], readable=[sys.prefix, sys.base_prefix])
assert refused(open, outside + "/kept")
assert refused(os.listdir, outside)
open(inside + "/file", "w").write("x")
assert open(inside + "/file").read() == "x"
""",
        tmp_path,
    )


@pytest.mark.skipif(landlock.landlock_version() < 6, reason="this kernel's Landlock is older")
def test_ports_and_signals(tmp_path: Path) -> None:
    inside_a_process(
        """
ports = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
names = [server.getsockname() for server in ports]
done = landlock.confine_writes([inside], connect_ports=[names[0][1]])
assert done.tcp and done.scoped and done.truncation
socket.create_connection(names[0]).close()
assert refused(socket.create_connection, names[1])
assert refused(socket.create_server, ("127.0.0.1", 0))
assert refused(os.kill, os.getppid(), 0)
""",
        tmp_path,
    )


def test_an_older_kernel_promises_less() -> None:
    assert landlock.list_landlock_refusals(0) == []
    assert (
        len(landlock.list_landlock_refusals(1))
        < len(landlock.list_landlock_refusals(3))
        < len(landlock.list_landlock_refusals(4))
        < len(landlock.list_landlock_refusals(7))
    )
