"""Runs one audit inside a run: writes the record, tells the parent process, and brings its verdict back.

What is looked at is a `Subject`: a trainer (`TrainerRun`) or a loop of the user's own (`own_loop_hook.LoopRun`).

- `audit_in_copy`, the usual way: a forked copy of the process looks, so that nothing can change the run, and hangs or
  crashes end the copy alone.
- `audit_in_place`: where a device is in use, which a forked process can't use. What is changed is put back.
- `hand_over_rehearsal`: the process is our own, and ends afterwards.

The parent (`truetune.auditing.listen_to_processes_and_hold_until_judged`) is told by one JSON message
(`build_run_message_for_parent`) and answers GO or STOP. The trade-off: the run waits for that answer; a parent that is
gone or silent means GO.
"""

from __future__ import annotations

import json
import os
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, Protocol, TypedDict

from truetune.probe.audit_time_limits_and_replies import GO, STOP, VERDICT_SECONDS, Limits
from truetune.probe.contain_own_failures_in_user_program import describe_error
from truetune.probe.forked_process import CopyFailed, Send, run_in_copy

if TYPE_CHECKING:
    from truetune.probe.orders_from_launcher_to_hook import HookOrders
    from truetune.probe.run_record import Record


class RunMessage(TypedDict):
    """What the parent is told of one process of a run."""

    folder: str
    """Of its record"""
    rank: int
    expected: int
    """Processes of the run on this machine: the parent judges when so many have come"""
    group: list[str | int | None]
    """The same for all processes of one run"""
    failed: NotRequired[str]
    """Why there is no record"""


class Subject(Protocol):
    """What is looked at: a trainer that is about to train, or a loop of the user's own."""

    @property
    def run_process_count(self) -> int:
        """The number of processes of this run, on all its machines."""

    @property
    def rank(self) -> int:
        """The rank of this process among those of the run."""

    def observe(self, folder: Path, orders: HookOrders) -> Record:
        """Look at the run and make its record; `folder` takes the record as far as it is made. Raises whatever
        goes wrong.
        """

    def preserve_process(self) -> AbstractContextManager[None]:
        """A block after which what looking changes in this process is put back."""


class TrainerRun:
    """A trainer that is about to train, its loader, and the data set that its outermost class was given."""

    def __init__(self, trainer: Any, loader: Any, source_data: Any) -> None:
        self.trainer, self.loader, self.given = trainer, loader, source_data

    @property
    def run_process_count(self) -> int:
        """The number of processes as the trainer sees it: processes that do not know of each other are runs of
        their own.
        """
        return int(self.trainer.args.world_size)

    @property
    def rank(self) -> int:
        """The rank of this process as the trainer sees it."""
        return int(self.trainer.args.process_index)

    def observe(self, folder: Path, orders: HookOrders) -> Record:
        """Look at the run and make its record: its first batches, its model and its loss."""
        from truetune.probe.choose_rollout_recorder import are_rollouts_recorded
        from truetune.probe.record_run_ready_to_train import observe_run
        from truetune.probe.run_record import write_record_files
        from truetune.probe.temporary_data_loader import temporary_data_loader_and_tokenizer

        with temporary_data_loader_and_tokenizer(self.trainer, self.loader) as (loader, tokenizer):
            record = observe_run(
                folder,
                model=self.trainer.model,
                loader=loader,
                tokenizer=tokenizer,
                trainer=self.trainer,
                source_data=self.given,
                count=orders["batches"],
                laws=orders["laws"],
                canary=orders["canary"],
                keys=orders.get("keys"),
                keep=lambda record: write_record_files(record, folder),
            )
        if are_rollouts_recorded(self.trainer) and "lost" in record.facts:
            # Nothing is lost: what is learned is sampled later, and judged then (`truetune.probe.rollout_hook`).
            record.facts["rollouts_follow"] = record.facts.pop("lost")
        return record

    def preserve_process(self) -> AbstractContextManager[None]:
        """A block after which what the process has one of, and the trainer's attributes, are put back."""
        from truetune.probe.restore_state_changed_by_observing_run import preserve_process_state

        return preserve_process_state(self.trainer)


def audit_in_copy(subject: Subject, orders: HookOrders, number: int, limits: Limits) -> str:
    """Look at the run in a forked copy of this process; GO or STOP.

    Raises CopyFailed where the copy ends early or takes too long (the parent has been told), OSError where there is
    none.
    """
    # Taken here: in the copy they would be those of the copy.
    process, launcher = os.getpid(), os.getppid()
    announced: list[RunMessage] = []
    verdicts: list[str] = []

    def work(send: Send) -> None:
        """In the copy: look, write the record, and wait for the parent's verdict."""
        folder = Path(orders["folder"], f"{process}-{number}")
        message = build_run_message_for_parent(subject, folder, number, process, launcher)
        # First of all, so that the parent can be told of a copy that dies on the way.
        send({"about": message})
        observe_and_write_record(subject, orders, message)
        send({"recorded": True})
        send({"verdict": await_verdict(message, orders, limits.verdict)})

    def follow(message: dict[str, Any]) -> float | None:
        """In the original: note a message of the copy. Seconds until the next one must come; None after the last."""
        if "about" in message:
            announced.append(message["about"])
            return limits.audit
        if "recorded" in message:
            return limits.verdict + limits.step
        if "verdict" in message:
            verdicts.append(message["verdict"])
            return None
        raise CopyFailed(str(message.get("failed")))

    try:
        # The parent's folder goes with the parent, even where that is killed
        # (`truetune.auditing.temporary_folder_removed_with_process`).
        run_in_copy(work, follow, limits.audit, lambda: os.path.isdir(orders["folder"]))
    except CopyFailed as error:
        # The other processes of the run must not wait for this one.
        if announced:
            await_verdict({**announced[0], "failed": str(error)}, orders, 0.0)
        raise
    return STOP if verdicts == [STOP] else GO


def audit_in_place(subject: Subject, orders: HookOrders, number: int, limits: Limits) -> str:
    """Look at the run in this process, as it must be where a device is in use; what it changes is put back."""
    message = build_run_message_for_parent(
        subject,
        Path(orders["folder"], f"{os.getpid()}-{number}"),
        number,
        os.getpid(),
        os.getppid(),
    )
    try:
        with subject.preserve_process():
            observe_and_write_record(subject, orders, message)
    except BaseException as error:
        with suppress(Exception):
            await_verdict({**message, "failed": describe_error(error)}, orders, 0.0)
        raise
    return STOP if await_verdict(message, orders, limits.verdict) == STOP else GO


def hand_over_rehearsal(
    trainer: Any, loader: Any, source_data: Any, orders: HookOrders, number: int
) -> None:
    """Hand a record of a rehearsal over. Raises SystemExit: nothing is trained after it, whatever failed."""
    from truetune.probe.rehearse_by_memorising_and_reciting import rehearse_run
    from truetune.probe.run_record import write_record_files

    folder = Path(orders["folder"], f"{os.getpid()}-{number}")
    message = build_run_message_for_parent(
        TrainerRun(trainer, loader, source_data), folder, number, os.getpid(), os.getppid()
    )
    try:
        folder.mkdir()
        orders_here: HookOrders = {**orders, "folder": str(folder)}
        write_record_files(
            rehearse_run(
                trainer,
                orders_here,
                folder,
                loader=loader,
                source_data=source_data,
                keep=lambda record: write_record_files(record, folder),
            ),
            folder,
        )
    except Exception as error:
        # No record is one that could not be made: the parent says why, and the run continues.
        message["failed"] = describe_error(error)
    await_verdict(message, orders)
    raise SystemExit(0)


def build_run_message_for_parent(
    subject: Subject, folder: Path, number: int, process: int, parent: int
) -> RunMessage:
    """What the parent is told of this process of the run: its record's folder, its rank, and with whom it is judged.

    `number` counts the audits of the process; `process` is its id, `parent` that of the launcher, which processes of
    one run share.
    """
    world = subject.run_process_count
    return {
        "folder": str(folder),
        "rank": subject.rank,
        "expected": min(world, int(os.environ.get("LOCAL_WORLD_SIZE", world))),
        "group": [os.environ.get("MASTER_PORT"), parent if world > 1 else process, number],
    }


def observe_and_write_record(subject: Subject, orders: HookOrders, message: RunMessage) -> None:
    """Look at the run and write its record into the message's folder; where that fails the message says why."""
    from truetune.probe.run_record import write_record_files

    folder = Path(message["folder"])
    try:
        folder.mkdir()
        write_record_files(subject.observe(folder, orders), folder)
    except Exception as error:
        message["failed"] = describe_error(error)


def await_verdict(message: RunMessage, orders: HookOrders, seconds: float = VERDICT_SECONDS) -> str:
    """The parent's verdict, GO or STOP; GO where there is no parent any more, or it does not answer in time."""
    from multiprocessing import AuthenticationError
    from multiprocessing.connection import Client

    address = orders["address"]
    if not isinstance(address, str):
        # JSON has made a list of the pair, which `Client` does not take.
        host, port = address
        address = (host, port)
    try:
        # The key keeps other processes of the machine from answering.
        with Client(address, authkey=bytes.fromhex(orders["authkey"])) as parent:
            parent.send_bytes(json.dumps(message).encode())
            if parent.poll(seconds):
                return parent.recv_bytes(16).decode()
    except (
        OSError,
        EOFError,
        AuthenticationError,
    ):  # the parent has gone: the run is nobody's but the user's
        pass
    return GO
