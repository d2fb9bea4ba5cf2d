"""The parent's ear: who is judged together, and what a process hears that can't be judged."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Client
from pathlib import Path

import pytest

from truetune.auditing.listen_to_processes_and_hold_until_judged import (
    PROCESS_ENDED,
    ProcessListener,
)
from truetune.probe.audit_session import RunMessage, await_verdict
from truetune.probe.orders_from_launcher_to_hook import HookOrders
from truetune.probe.run_record import Record, write_record_files


class Parent:
    """An ear, and what it was told."""

    def __init__(self, folder: Path, go: bool = True) -> None:
        self.folder, self.go = folder, go
        self.judged: list[list[int]] = []
        self.reasons: list[dict[int, str]] = []
        """By rank, why records are not whole"""
        self.said: list[str] = []
        self.lost: list[str] = []
        self.listener = ProcessListener(folder, self._judge, self.said.append, self.lost.append)
        self.orders: HookOrders = {
            "address": self.listener.address,
            "authkey": self.listener.authkey.hex(),
        }

    def _judge(self, records: Sequence[Record]) -> bool:
        self.judged.append(sorted(record.facts["rank"] for record in records))
        self.reasons.append(
            {
                record.facts["rank"]: record.facts["lost"]
                for record in records
                if "lost" in record.facts
            }
        )
        return self.go

    def message(
        self,
        rank: int = 0,
        expected: int = 1,
        group: int = 1,
        *,
        recorded: bool = True,
        failed: str = "",
    ) -> RunMessage:
        folder = self.folder / f"{group}-{rank}"
        if recorded:
            write_record_files(Record({"rank": rank, "batches": []}), folder)
        message: RunMessage = {
            "folder": str(folder),
            "rank": rank,
            "expected": expected,
            "group": ["", group],
        }
        if failed:
            message["failed"] = failed
        return message


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[Parent]:
    made = Parent(tmp_path)
    yield made
    made.listener.close()


def together(parent: Parent, messages: Sequence[RunMessage]) -> list[str]:
    answers: list[str] = []
    threads = [
        threading.Thread(target=lambda m=m: answers.append(await_verdict(m, parent.orders)))
        for m in messages
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return answers


def test_processes_of_one_run_are_judged_together(parent: Parent) -> None:
    assert together(parent, [parent.message(rank, 3) for rank in range(3)]) == ["go"] * 3
    assert parent.judged == [[0, 1, 2]]


def test_each_run_for_itself(parent: Parent) -> None:
    parent.go = False
    assert together(parent, [parent.message(group=group) for group in (1, 2)]) == ["stop"] * 2
    assert parent.judged == [[0], [0]]


def test_a_process_that_failed_is_no_reason_to_wait(parent: Parent) -> None:
    messages = [
        parent.message(0, 2),
        parent.message(1, 2, recorded=False, failed="KeyError: 'text'"),
    ]
    assert together(parent, messages) == ["go"] * 2
    assert parent.judged == [[0]]
    assert parent.lost == ["the run can't be looked at: KeyError: 'text'"]


def test_what_a_process_recorded_before_it_failed_is_judged(parent: Parent) -> None:
    messages = [parent.message(0, 2), parent.message(1, 2, failed="KeyError: 'text'")]
    assert together(parent, messages) == ["go"] * 2
    assert parent.judged == [[0, 1]]
    assert parent.reasons == [{1: "KeyError: 'text'"}]
    assert parent.lost == ["the run can't be looked at: KeyError: 'text'"]


def test_what_a_process_recorded_that_told_nobody_is_judged_in_the_end(parent: Parent) -> None:
    parent.message(0)
    parent.message(3, group=2, recorded=False)
    parent.listener.close()
    assert parent.judged == [[0]]
    assert parent.reasons == [{0: PROCESS_ENDED}]
    assert parent.lost == [f"the run can't be looked at: {PROCESS_ENDED}"]
    assert parent.listener.reached == 1


def test_with_those_that_came_when_the_command_has_ended(parent: Parent) -> None:
    answers: list[str] = []
    waiting = threading.Thread(
        target=lambda: answers.append(await_verdict(parent.message(0, 2), parent.orders))
    )
    waiting.start()
    while not parent.listener._groups:
        waiting.join(0.01)
    parent.listener.close()
    waiting.join(30)
    assert answers == ["go"]
    assert parent.judged == [[0]]
    assert parent.said == ["1 of 2 processes came: judged with these"]


def test_a_judge_that_fails_stops_nothing(parent: Parent) -> None:
    parent.listener._judge_run = lambda records: bool(1 / 0)
    assert await_verdict(parent.message(), parent.orders) == "go"
    assert "ZeroDivisionError" in parent.lost[0]


@pytest.mark.parametrize(
    "sent", [b"{", b"{}", json.dumps({"folder": "/", "expected": 1, "group": 1}).encode()]
)
def test_what_is_no_message_is_told(sent: bytes, parent: Parent) -> None:
    with Client(parent.listener.address, authkey=parent.listener.authkey) as client:
        client.send_bytes(sent)
        with pytest.raises(EOFError):
            client.recv_bytes()
    assert "can't be understood" in parent.lost[0]


def test_without_a_parent_or_its_key_the_run_goes_on_in_silence(
    parent: Parent, capfd: pytest.CaptureFixture[str]
) -> None:
    assert await_verdict(parent.message(), parent.orders | {"authkey": "00"}) == "go"
    assert await_verdict(parent.message(), parent.orders) == "go"
    parent.listener.close()
    assert await_verdict(parent.message(), parent.orders) == "go"
    assert capfd.readouterr() == ("", "")
