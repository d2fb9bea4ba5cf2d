"""Listens to the processes of a run: they tell where their record is, and wait until all of them have been judged.

Each process connects with a key, sends a small message and waits for `go` or `stop`. Records of one run (its ranks) are
judged together when all have come, or after `MAX_WAIT_S`. The trade-off: a training waits while it is judged; but a
run is never stopped, nor kept waiting, because of a fault of ours: what goes wrong here becomes a reason, and the
answer is go.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

from truetune.parsing.input_limits import LOG_RECORD
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.probe.run_record import Record, read_record

JudgeRun = Callable[[Sequence[Record]], bool]
"""The records of one run's processes -> may it continue?"""
PROCESS_ENDED = "its process ended during the audit"
# Chosen, not measured: ranks load the same model within minutes of each other; with half, slow disks lose ranks, and
# with double, a run whose other ranks never come stands still for longer.
MAX_WAIT_S = 300.0
"""Seconds from the first process of a run to its last; then it is judged with those that came"""


@dataclass
class _ProcessGroup:
    """The processes of one run, as far as they came."""

    expected: int
    arrived: list[tuple[Connection, Record | None]] = field(default_factory=list)
    timer: threading.Timer | None = None
    judged: bool = False


class ProcessListener:
    """Listens in a thread of its own. `judge` is called there, for one group of processes at a time."""

    def __init__(
        self,
        folder: Path,
        judge: JudgeRun,
        complain: Callable[[str], None],
        lose: Callable[[str], None],
    ) -> None:
        """`complain` is told what else is odd, `lose` why a training is not judged."""
        self.authkey = secrets.token_bytes(32)
        path = str(folder / "socket")
        # The path of a Unix socket has 104 bytes on macOS and 108 on Linux, with the end mark.
        unix = hasattr(os, "getuid") and len(path) < 100
        self._listener = Listener(path if unix else ("127.0.0.1", 0), authkey=self.authkey)
        self.address: Any = self._listener.address
        self._judge_run, self._warn, self._report_lost = judge, complain, lose
        self._groups: dict[str, _ProcessGroup] = {}
        # Reentrant: a timer and the last process of a group both conclude, one of them under the lock already.
        self._lock = threading.RLock()
        self._open = True
        self._folder = folder
        self._reported_folders: set[Path] = set()
        """Folders of records that processes told of"""
        self.reached = 0
        """Groups that began to train, whether or not they could be looked at"""
        threading.Thread(target=self._accept_connections_until_closed, daemon=True).start()

    def close(self) -> None:
        """Judge what waits for others that will not come, and hear no more."""
        with self._lock:
            self._open = False
            for group in self._groups.values():
                self._judge_and_answer_group(group)
            for record in self._list_partial_records():
                self._judge_partial_record(record)
        family = socket.AF_UNIX if isinstance(self.address, str) else socket.AF_INET
        # A connection wakes the thread, which ends then: closing a listener does not wake who accepts.
        with suppress(OSError), socket.socket(family) as knock:
            knock.connect(self.address)
        self._listener.close()

    def _accept_connections_until_closed(self) -> None:
        """Accept until closed; each connection in a thread of its own, for it waits for others of its run."""
        while self._open:
            try:
                connection = self._listener.accept()
            except Exception:  # one that knows no key, or the listener's end
                continue
            if not self._open:
                return connection.close()
            threading.Thread(
                target=self._receive_and_conclude_group, args=(connection,), daemon=True
            ).start()

    def _receive_and_conclude_group(self, connection: Connection) -> None:
        """Read one process's message, and conclude its group where it is the last."""
        try:
            # The key proves that the process is ours, but not that its message is whole or small.
            message = parse_json(connection.recv_bytes(1 << 16), LOG_RECORD)
            name, expected, failed = (
                json.dumps(message["group"]),
                int(message["expected"]),
                message.get("failed"),
            )
            folder = Path(message["folder"])
            self._reported_folders.add(folder)
            record = read_partial_record(folder, str(failed)) if failed else read_record(folder)
        except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
            self._report_lost(f"a process of the run can't be understood: {error!r}")
            connection.close()
            return
        if failed:
            self._report_lost(f"the run can't be looked at: {failed}")
        with self._lock:
            group = self._groups.setdefault(name, _ProcessGroup(expected))
            if group.judged:
                _send_verdict(connection, go=True)
                return
            group.arrived.append((connection, record))
            if len(group.arrived) >= group.expected:
                self._judge_and_answer_group(group)
            elif group.timer is None:
                group.timer = threading.Timer(MAX_WAIT_S, self._judge_and_answer_group, (group,))
                group.timer.daemon = True
                group.timer.start()

    def _judge_and_answer_group(self, group: _ProcessGroup) -> None:
        """Judge a group, once, and answer all its processes."""
        with self._lock:
            if group.judged:
                return
            group.judged = True
            if group.timer is not None:
                group.timer.cancel()
            if len(group.arrived) < group.expected:
                self._warn(
                    f"{len(group.arrived)} of {group.expected} processes came: judged with these"
                )
            records = [record for _, record in group.arrived if record is not None]
            go = True
            self.reached += 1
            try:
                if records:
                    go = self._judge_run(records)
            # A rule, or the caller's own function, may raise anything: the training must continue all the same.
            except Exception as error:
                self._report_lost(f"the audit failed: {type(error).__name__}: {error}")
            finally:
                for connection, _ in group.arrived:
                    _send_verdict(connection, go=go)

    def _list_partial_records(self) -> Iterator[Record]:
        """What processes recorded that ended during their audit, and so told nobody."""
        for file in sorted(self._folder.glob("*/record.json")):
            if (
                file.parent not in self._reported_folders
                and (record := read_partial_record(file.parent, PROCESS_ENDED)) is not None
            ):
                yield record

    def _judge_partial_record(self, record: Record) -> None:
        """Judge what a process recorded before it ended; nobody waits for the answer."""
        self.reached += 1
        self._report_lost(f"the run can't be looked at: {PROCESS_ENDED}")
        try:
            self._judge_run([record])
        except Exception as error:
            self._report_lost(f"the audit failed: {type(error).__name__}: {error}")


def read_partial_record(folder: Path, reason: str) -> Record | None:
    """What was recorded before an audit was lost for this reason; None where nothing was."""
    try:
        record = read_record(folder)
    except (OSError, ValueError, KeyError):
        return None
    record.facts["lost"] = reason
    return record


def _send_verdict(connection: Connection, *, go: bool) -> None:
    """Tell a process to continue, or to stop; it may have ended while it waited."""
    try:
        connection.send_bytes(b"go" if go else b"stop")
        connection.close()
    except OSError:
        pass
