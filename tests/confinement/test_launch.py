"""The launcher holds whatever a program tries, by each means that the kernel has, alone and together."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.confinement import escapes
from truetune.confinement import confined_launcher, landlock, namespaces, seccomp

ROOT = Path(__file__).parents[2]
HOOKED = ROOT / "src" / "truetune" / "probe" / "hooked"


def has_namespaces() -> bool:
    """Tried as the launcher does."""
    kept = Path(os.environ.get("TMPDIR", "/tmp"), f"truetune-try-{os.getpid()}")
    kept.mkdir()
    try:
        command = confined_launcher.confined_command_line(["true"], [kept])
        command.insert(command.index("--"), "--without=landlock")
        return subprocess.run(command, capture_output=True).returncode == 0
    finally:
        confined_launcher.remove_overlay_folder(str(kept))


MEANS = {
    "all": [],
    "namespaces": ["--without=landlock"],
    "landlock": ["--without=namespaces"],
}
SKIPPED = {
    "namespaces": {"signal_to_another_process"},  # they share the kernel's list of processes
    "landlock": {"unix_socket"},  # a socket with a path is opened by no right that Landlock knows
    "python": {
        "make_a_pipe", "trace_another_process", "beside_a_folder_descriptor",  # no event, or one that does not say all
        "connect", "datagram", "opened_by_sending", "multipath", "abstract_socket",  # to the own machine
    },
}  # fmt: skip
"""Ways that are documented to be open by this means alone"""


@pytest.fixture(params=MEANS)
def means(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if name != "landlock" and not has_namespaces():
        pytest.skip("no namespaces here")
    if name == "landlock" and (
        landlock.landlock_version() < 6 or not seccomp.knows_this_architecture()
    ):
        pytest.skip("this kernel's Landlock is older")
    return name


def tree(folder: Path) -> dict[str, tuple[Any, ...]]:
    """All of a folder: contents, modes, owners, times of change, attributes, inodes."""
    found = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        seen = path.lstat()
        content = path.read_bytes() if path.is_file() else None
        attributes = os.listxattr(path, follow_symlinks=False)
        found[str(path)] = (
            content,
            seen.st_mode,
            seen.st_uid,
            seen.st_mtime_ns,
            seen.st_ino,
            seen.st_nlink,
            attributes,
        )
    return found


@contextmanager
def ears(folder: Path) -> Iterator[tuple[dict[str, Any], list[bytes]]]:
    """Servers of TCP, UDP and Unix sockets, and a process that waits: where they are, and what was heard."""
    heard: list[bytes] = []
    path = str(folder / "socket")
    tcp, udp = (
        socket.create_server(("127.0.0.1", 0)),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
    )
    udp.bind(("127.0.0.1", 0))
    by_path, abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    by_path.bind(path)
    abstract.bind("\0" + path)
    waiting = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])

    def listen(server: socket.socket) -> None:
        with suppress(OSError):
            if server.type == socket.SOCK_DGRAM:
                while data := server.recv(100):
                    heard.append(data)
            server.listen()
            while True:
                connection, _ = server.accept()
                heard.append(b"connected")
                connection.close()

    servers = (tcp, udp, by_path, abstract)
    for server in servers:
        threading.Thread(target=listen, args=(server,), daemon=True).start()
    try:
        yield (
            {
                "port": tcp.getsockname()[1],
                "datagram_port": udp.getsockname()[1],
                "socket": path,
                "process": waiting.pid,
            },
            heard,
        )
        if waiting.poll() is not None:
            heard.append(b"killed")
    finally:
        waiting.kill()
        waiting.wait()
        for server in servers:
            server.close()


def outside_of(folder: Path) -> Path:
    outside = folder / "outside"
    outside.joinpath("sub").mkdir(parents=True)
    for name in ("kept", "other", "sub/inner"):
        outside.joinpath(name).write_text(f"the content of {name}, as it was")
    return outside


def launched(
    kept: Path, options: list[str], words: list[str], **variables: str
) -> subprocess.CompletedProcess[str]:
    command = confined_launcher.confined_command_line(words, [kept])
    command[command.index("--") : command.index("--")] = options
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, env={**os.environ, **variables}
    )


def try_ways(
    tmp_path: Path, options: list[str], skipped: set[str], python_only: bool = False
) -> dict[str, str]:
    """Try all ways in this confinement. Nothing may have changed, and nothing been heard."""
    outside, kept = outside_of(tmp_path), tmp_path / "work"
    kept.mkdir()
    paths = [*([str(HOOKED)] if python_only else []), str(ROOT / "src"), str(ROOT)]
    variables = {"PYTHONPATH": os.pathsep.join(paths)}
    if python_only:
        variables |= {
            confined_launcher.ORDERS_VARIABLE: json.dumps({"mode": "rehearse", "folder": str(kept)})
        }
    before = tree(outside)
    with ears(tmp_path) as (places, heard):
        targets = {
            "outside": str(outside),
            "skipped": sorted(skipped),
            "native": not python_only,
            **places,
        }
        script = [sys.executable, "-m", "tests.confinement.escapes"]
        done = launched(kept, options, script, ESCAPES=json.dumps(targets), **variables)
        assert done.returncode == 0, done.stderr
        assert tree(outside) == before, done.stdout
        assert heard == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside", "socket", "work"]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_no_way_leads_out(means: str, tmp_path: Path) -> None:
    results = try_ways(tmp_path, MEANS[means], SKIPPED.get(means, set()))
    assert len(results) >= 75
    done = [name for name, result in results.items() if result == "done"]
    if means == "landlock":  # what seems to work there changes nothing
        assert all("change" in name or name in PRETENDED for name in done), done
    else:
        assert results["make_a_file"] == "done"  # under the overlay


PRETENDED = {
    "set_an_attribute",
    "touch",
    "c_library_chmod",
    "forked_process",
    "forked_and_executed",
    "another_process",
    "orphan",
    "shell",
    "spawned_by_posix",
    "c_library_system",
}
"""Done without effect: no mode is changed; the failure of a child is not our parent's"""


def test_pythons_hook_alone(tmp_path: Path) -> None:
    options = ["--python-only", "--without=landlock", "--without=namespaces"]
    results = try_ways(tmp_path, options, SKIPPED["python"], python_only=True)
    done = {name for name, result in results.items() if result == "done"}
    assert done <= {"forked_process", "another_process", "forked_and_executed"}, done
    refused = [result for name, result in results.items() if name not in done]
    assert all("truetune" in result for result in refused if "Refusal" in result)
    notes = [
        json.loads(path.read_text()) for path in (tmp_path / "work" / "refused").glob("*.json")
    ]
    assert {note["act"] for note in notes} >= {
        "opens for writing",
        "removes",
        "moves",
        "connects to",
        "starts",
    }
    lines = [note["line"] for note in notes]
    assert any("tests/confinement/escapes.py:" in line for line in lines), lines


def test_nothing_is_started_where_nothing_holds(tmp_path: Path) -> None:
    done = launched(
        tmp_path,
        ["--without=landlock", "--without=namespaces"],
        ["touch", str(tmp_path / "started")],
    )
    assert done.returncode == confined_launcher.REFUSED_EXIT_CODE
    assert "nothing was started: none of Linux's ways" in done.stderr
    assert not tmp_path.joinpath("started").exists()


def test_exit_codes_and_signals_are_the_commands(means: str, tmp_path: Path) -> None:
    assert launched(tmp_path, MEANS[means], ["sh", "-c", "exit 7"]).returncode == 7
    tmp_path.joinpath("other").mkdir()
    done = launched(tmp_path / "other", MEANS[means], ["sh", "-c", "kill -9 $$"])
    assert done.returncode == 128 + signal.SIGKILL


def test_root_keeps_no_right_over_the_system(means: str, tmp_path: Path) -> None:
    """CAP_SYS_ADMIN changes mounts, CAP_DAC_READ_SEARCH opens files by number: neither is seen by Landlock."""
    done = launched(
        tmp_path, MEANS[means], ["grep", "-E", "CapEff|NoNewPrivs", "/proc/self/status"]
    )
    held = dict(line.split(":") for line in done.stdout.splitlines())
    assert int(held["CapEff"], 16) & (1 << 21 | 1 << 2) == 0
    assert held["NoNewPrivs"].strip() == "1"


def test_the_temporary_folder_and_shared_memory_can_be_used(means: str, tmp_path: Path) -> None:
    script = (
        "import multiprocessing as m, os, shutil, socket, tempfile\nfrom multiprocessing import"
        " shared_memory\nfolder = tempfile.mkdtemp(); os.makedirs(folder + '/a/b'); open(folder +"
        " '/a/f', 'w').write('x')\nos.rename(folder + '/a/f', folder + '/a/b/f');"
        " shutil.copytree(folder + '/a', folder + '/c')\nshutil.rmtree(folder)\nm.Lock(); block ="
        " shared_memory.SharedMemory(create=True, size=10); block.close(); block.unlink()\nwith"
        " m.get_context('spawn').Pool(1) as pool: assert pool.map(abs, [-1]) =="
        " [1]\nopen('/dev/null', 'w').write('x'); print(len(os.urandom(3)))\n"
    )
    path = tmp_path / "script.py"
    path.write_text(f"if __name__ == '__main__':\n    exec({script!r})\n")
    done = launched(tmp_path, MEANS[means], [sys.executable, str(path)])
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


def test_nothing_stays_after_a_kill(means: str, tmp_path: Path) -> None:
    """The launcher's parent is killed: the command and its orphans end, and the folder goes."""
    kept = tmp_path / "work"
    kept.mkdir()
    number = tmp_path / "work" / "number"
    words = [
        "sh",
        "-c",
        f"setsid sh -c 'echo $$ > {number}.new; mv {number}.new {number}; sleep 600' & sleep 600",
    ]
    command = confined_launcher.confined_command_line(words, [kept])
    command[command.index("--") : command.index("--")] = MEANS[means]
    parent = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess; subprocess.run({command!r})"]
    )
    wait_until(number.exists)
    orphan = int(number.read_text())
    parent.kill()
    parent.wait()
    wait_until(lambda: not kept.exists())
    wait_until(lambda: not is_alive(orphan))


def is_alive(process: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_until(true: Any, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_folders_to_cover_hold_no_mount_point(tmp_path: Path) -> None:
    tmp_path.joinpath("a", "b").mkdir(parents=True)
    tmp_path.joinpath("a", "c").mkdir()
    tmp_path.joinpath("a", "d").mkdir()
    mounts = {
        "/": False,
        "/proc": False,
        str(tmp_path / "a" / "b"): False,
        str(tmp_path / "a" / "d"): True,
    }
    found = list(namespaces.folders_for_overlays(mounts, []))
    assert str(tmp_path / "a" / "b") in found
    assert str(tmp_path / "a" / "d") not in found
    assert str(tmp_path / "a" / "c") in found
    assert str(tmp_path) not in found
    assert not {"/proc", "/usr"} & set(found)


def test_all_ways_are_known() -> None:
    assert len(escapes.WAYS) >= 75
    for names in SKIPPED.values():
        assert names <= {*escapes.WAYS}
