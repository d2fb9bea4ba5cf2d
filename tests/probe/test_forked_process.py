"""A forked copy of the process takes nothing from the original but what is in memory, and gives nothing back."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from truetune.probe import forked_process
from truetune.probe.forked_process import CopyFailed, Send, run_in_copy

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere the audit runs in the process itself"
)


def hear_once(work: Callable[[Send], None]) -> dict[str, Any]:
    """The first message of a copy that does this."""
    heard: list[dict[str, Any]] = []

    def follow(message: dict[str, Any]) -> None:
        heard.append(message)

    run_in_copy(work, follow, 60.0, lambda: True)
    return heard[0]


def test_shared_memory_is_not_shared_with_the_copy() -> None:
    tensor = torch.zeros(1000, dtype=torch.long).share_memory_()
    value = multiprocessing.Value("i", 7)
    tensor[3] = 5

    def count(send: Send) -> None:
        seen = [int(tensor[3]), value.value]
        tensor[3] += 1
        value.value += 1
        send({"before": seen, "after": [int(tensor[3]), value.value]})

    assert hear_once(count) == {"before": [5, 7], "after": [6, 8]}
    assert (int(tensor[3]), value.value) == (5, 7)


def test_a_copy_shares_memory_with_its_own_children() -> None:
    tensor = torch.zeros(1).share_memory_()

    def count(send: Send) -> None:
        child = os.fork()
        if child == 0:
            tensor[0] = 3
            os._exit(0)
        os.waitpid(child, 0)
        send({"seen": float(tensor[0])})

    assert hear_once(count) == {"seen": 3.0}
    assert float(tensor[0]) == 0.0


def test_a_handler_of_sigchld_does_not_run_for_the_copy() -> None:
    calls: list[int] = []
    before = signal.signal(signal.SIGCHLD, lambda number, frame: calls.append(number))
    try:
        hear_once(lambda send: send({}))
        assert calls == []
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        assert len(calls) == 1
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_copy_that_waits_for_a_thread_it_has_not_got_is_abandoned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forked_process, "STALL_SECONDS", 1.0)
    lock = threading.Lock()
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()

    def take(send: Send) -> None:
        with lock:
            send({})

    try:
        with pytest.raises(CopyFailed, match="waits for a lock"):
            hear_once(take)
    finally:
        done.set()
        thread.join()
