"""The boundary: whatever our code does, the program around it goes on; the user's own signals get through."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any

import pytest

from truetune.probe.contain_own_failures_in_user_program import run_contained
from truetune.probe.forked_process import CopyFailed, can_fork, run_in_copy

HERE = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks and signals")


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def fail(error: BaseException) -> None:
    raise error


def spin() -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("error", "reason"),
    [(KeyError("x"), "KeyError: 'x'"), (SystemExit(3), "SystemExit: 3"), (KeyboardInterrupt(), "KeyboardInterrupt"),
     (GeneratorExit(), "GeneratorExit"), (Mute(), "an error that can't be put into words")],
)  # fmt: skip
def test_nothing_that_is_raised_gets_out(error: BaseException, reason: str) -> None:
    told: list[str] = []
    assert run_contained(fail, error, on_failure=told.append) is None
    assert told == [reason]


def test_what_cannot_be_told_is_not() -> None:
    assert run_contained(fail, KeyError(), on_failure=lambda reason: fail(SystemExit(1))) is None


@HERE
@pytest.mark.parametrize("work", [spin, lambda: time.sleep(60), lambda: threading.Event().wait(60)])
@pytest.mark.parametrize("main", [True, False])
def test_what_hangs_is_abandoned(work: Any, main: bool) -> None:
    told: list[str] = []
    if not main and work is not spin:
        pytest.skip(
            "a call that waits in C, off the main thread, can't be left: the documents say so"
        )
    thread = threading.Thread(
        target=lambda: run_contained(work, on_failure=told.append, seconds=0.2)
    )
    if main:
        thread.run()
    else:
        thread.start()
        thread.join(30)
    assert told == ["the hook took more than 0.2 s and was abandoned"]
    assert signal.getsignal(signal.SIGURG) == signal.SIG_DFL
    assert "truetune-clock" not in {thread.name for thread in threading.enumerate()}


@HERE
def test_ctrl_c_and_the_users_handlers_get_through() -> None:
    def interrupted() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60)
        except BaseException:  # even if our code swallows it
            pass

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run_contained(interrupted, on_failure=lambda reason: None)
    assert signal.getsignal(signal.SIGINT) is before
    seen: list[int] = []
    former = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    try:
        run_contained(
            lambda: os.kill(os.getpid(), signal.SIGUSR1), on_failure=lambda reason: seen.append(-1)
        )
    finally:
        signal.signal(signal.SIGUSR1, former)
    assert seen == [signal.SIGUSR1]


@HERE
@pytest.mark.skipif(not can_fork(), reason="a device is in use")
def test_a_copy_changes_nothing_of_its_original(
    tmp_path: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows").write_text("one two three")
    numbers = [1, 2]
    told: list[dict[str, Any]] = []
    with (
        open(tmp_path / "rows", encoding="ascii") as rows,
        open(tmp_path / "log", "w", encoding="ascii") as log,
    ):
        assert os.read(rows.fileno(), 4) == b"one "
        log.write("of the original; ")

        def work(send: Any) -> None:
            numbers.append(3)
            print("out", flush=True)
            log.write("of the copy")
            log.flush()
            os.write(2, b"err")
            send({"read": os.read(rows.fileno(), 4).decode(), "numbers": numbers})

        run_in_copy(work, lambda message: told.append(message), 30.0, lambda: True)
        assert os.read(rows.fileno(), 4) == b"two "
    assert told == [{"read": "two ", "numbers": [1, 2, 3]}]
    assert numbers == [1, 2]
    assert (tmp_path / "log").read_text() == "of the original; "
    assert capfd.readouterr() == ("", "")


@HERE
@pytest.mark.skipif(not can_fork(), reason="a device is in use")
@pytest.mark.parametrize(
    ("work", "reason"),
    [(lambda send: os.kill(os.getpid(), signal.SIGSEGV), "ended early (signal 11)"),
     (lambda send: os._exit(5), "ended early (exit code 5)"),
     (lambda send: sys.exit(5), "SystemExit: 5"),
     (lambda send: time.sleep(60), "took more than 0.3 s")],
)  # fmt: skip
def test_a_copy_that_crashes_or_hangs_is_an_error(work: Any, reason: str) -> None:
    def refuse(message: dict[str, Any]) -> float | None:
        raise CopyFailed(message["failed"])

    with pytest.raises(CopyFailed) as caught:
        run_in_copy(work, refuse, 0.3 if "took" in reason else 30.0, lambda: True)
    assert reason in str(caught.value)
