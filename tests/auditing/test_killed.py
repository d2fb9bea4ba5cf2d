"""What SIGKILL and Ctrl-C leave behind: nothing in the temporary folder, no process, and a training that goes on.

The trainings are of a package that only looks like transformers, whose audit waits until the test has killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.auditing.running import environment
from truetune.auditing.temporary_folder_removed_with_process import (
    MARKER_NAME,
    MARKER_TEXT,
    open_workspace,
)

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes of /proc")
SECONDS = 60.0
HANDLERS = """
class CallbackHandler:
    train_dataloader = None

    def on_train_begin(self, args, state, control):
        print("begins", flush=True)
"""
TRAINER = """
import os, time
from types import SimpleNamespace
from transformers.trainer_callback import CallbackHandler

class Trainer:
    def __init__(self):
        self.callback_handler = CallbackHandler()

    @property
    def args(self):
        with open(os.environ["LOOKED"], "w") as file:
            file.write(str(os.getpid()))
        while True:
            time.sleep(0.1)

    def train(self):
        self.callback_handler.on_train_begin(None, None, None)
        print("trained", flush=True)
"""
SCRIPT = (
    "import os; print(os.getpid(), flush=True); from transformers.trainer import Trainer;"
    " Trainer().train()"
)


class Run:
    """`truetune run` on a training whose audit waits."""

    def __init__(self, folder: Path) -> None:
        (folder / "transformers").mkdir()
        for name, text in (("__init__", ""), ("trainer_callback", HANDLERS), ("trainer", TRAINER)):
            (folder / "transformers" / f"{name}.py").write_text(text)
        self.temporary, looked = folder / "tmp", folder / "looked"
        self.temporary.mkdir()
        variables = environment() | {"LOOKED": str(looked), "TMPDIR": str(self.temporary)}
        variables["PYTHONPATH"] = f"{folder}:{variables['PYTHONPATH']}"
        command = [sys.executable, "-m", "truetune", "run", "--", sys.executable, "-c", SCRIPT]
        self.truetune = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=variables,
            start_new_session=True,
        )
        assert self.truetune.stdout is not None
        self.training = int(self.truetune.stdout.readline())
        until(lambda: looked.exists() and bool(looked.read_text()))
        self.copy = int(looked.read_text())

    def output(self) -> str:
        """All that the training prints after its first line, until it ends."""
        assert self.truetune.stdout is not None
        return self.truetune.stdout.read()

    def nothing_is_left(self) -> bool:
        return not list(self.temporary.iterdir()) and not any(
            map(lives, (self.training, self.copy))
        )


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path)
    yield made
    for process in (made.training, made.copy):
        if lives(process):
            os.kill(process, signal.SIGKILL)
    made.truetune.kill()
    made.truetune.communicate()


def until(holds: Callable[[], bool], seconds: float = SECONDS) -> None:
    """Wait until this holds; fails where it does not in so many seconds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.02)


def lives(process: int) -> bool:
    """Does a process run? One that has ended and is not waited for does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_training_goes_on_without_truetune(run: Run) -> None:
    assert lives(run.copy)
    run.truetune.kill()
    until(lambda: not list(run.temporary.iterdir()), 5.0)
    assert run.output() == "begins\ntrained\n"
    assert run.truetune.stderr is not None
    assert run.truetune.stderr.read() == ""
    until(run.nothing_is_left, 5.0)


def test_nothing_outlives_a_training_that_is_killed(run: Run) -> None:
    os.kill(run.training, signal.SIGKILL)
    until(lambda: not lives(run.copy), 5.0)
    assert run.truetune.wait(SECONDS) == 128 + signal.SIGKILL
    until(run.nothing_is_left, 5.0)


def test_nothing_outlives_both(run: Run) -> None:
    os.killpg(run.truetune.pid, signal.SIGKILL)
    until(run.nothing_is_left, 5.0)


def test_an_audit_whose_process_is_killed_is_not_judged(run: Run) -> None:
    os.kill(run.copy, signal.SIGKILL)
    assert run.output() == "begins\ntrained\n"
    assert run.truetune.stderr is not None
    assert (
        run.truetune.stderr.read()
        == "truetune: not judged: the audit's process ended early (signal 9); the run continues\n"
    )
    assert run.truetune.wait(SECONDS) == 3
    until(run.nothing_is_left, 5.0)


def test_ctrl_c_in_an_audit_ends_the_run_as_it_would(run: Run) -> None:
    os.kill(run.training, signal.SIGINT)
    assert run.output() == ""
    assert run.truetune.wait(SECONDS) == 128 + signal.SIGINT
    assert run.truetune.stderr is not None
    assert "KeyboardInterrupt" in run.truetune.stderr.read()
    until(run.nothing_is_left, 5.0)


def test_folders_left_behind_are_removed_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left = {name: tmp_path / f"truetune-{name}" for name in ("dead", "foreign", "empty", "file")}
    for name in ("dead", "foreign", "empty"):
        left[name].mkdir()
    (left["dead"] / MARKER_NAME).write_bytes(MARKER_TEXT)
    (left["dead"] / "record.json").write_text("{}")
    (left["foreign"] / MARKER_NAME).write_bytes(MARKER_TEXT + b"more")
    left["file"].write_text("a user's")
    (tmp_path / "truetune-link").symlink_to(left["foreign"])
    with open_workspace() as living:
        with open_workspace(guard=False) as other:
            assert living.is_dir()
            assert other != living
        assert {path.name for path in tmp_path.iterdir()} == {
            "truetune-foreign",
            "truetune-empty",
            "truetune-file",
            "truetune-link",
            living.name,
        }
    assert not living.exists()


def test_a_workspace_until_exit_goes_with_its_process(tmp_path: Path) -> None:
    script = (
        "from truetune.auditing.temporary_folder_removed_with_process import open_workspace_until_exit\n"
        "folder = open_workspace_until_exit()\n"
        "folder.joinpath('record.json').touch()\n"
        "print(folder)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=environment() | {"TMPDIR": str(tmp_path)},
        check=True,
    )
    assert Path(done.stdout.strip()).parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_the_guard_of_a_folder_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = processes_like_this()
    with open_workspace():
        assert len(processes_like_this()) == len(before) + 1
    until(lambda: processes_like_this() <= before, 5.0)


def processes_like_this() -> set[int]:
    """Processes with the command line of this one that lead a session of their own: guards among them."""
    own = Path("/proc/self/cmdline").read_bytes()
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        process = int(path.parent.name)
        try:
            if path.read_bytes() == own and os.getsid(process) != os.getsid(0):
                found.add(process)
        except OSError:  # it has ended
            continue
    return found
