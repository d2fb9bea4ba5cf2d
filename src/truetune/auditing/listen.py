"""The parent's ear: processes of a run tell where their record is, and wait until all of them have been judged."""

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

from truetune.parsing.json_reader import parse_json
from truetune.parsing.limits import LOG_RECORD
from truetune.probe.run_record import Record, read_record

Judge = Callable[[Sequence[Record]], bool]
"""The records of one run's processes -> may it go on?"""
ENDED = "its process ended during the audit"
PATIENCE = 300.0
"""Seconds from the first process of a run to its last; then it is judged with those that came"""


@dataclass
class _Group:
    expected: int
    arrived: list[tuple[Connection, Record | None]] = field(default_factory=list)
    timer: threading.Timer | None = None
    judged: bool = False


class Ear:
    """Listens in a thread of its own. `judge` is called there, for one group of processes at a time."""

    def __init__(
        self,
        folder: Path,
        judge: Judge,
        complain: Callable[[str], None],
        lose: Callable[[str], None],
    ) -> None:
        """`complain` is told what else is odd, `lose` why a training is not judged."""
        self.authkey = secrets.token_bytes(32)
        path = str(folder / "ear")
        unix = hasattr(os, "getuid") and len(path) < 100
        self._listener = Listener(path if unix else ("127.0.0.1", 0), authkey=self.authkey)
        self.address: Any = self._listener.address
        self._judge, self._complain, self._lose = judge, complain, lose
        self._groups: dict[str, _Group] = {}
        self._lock = threading.RLock()
        self._open = True
        self._folder = folder
        self._heard: set[Path] = set()
        """Folders of records that processes told of"""
        self.reached = 0
        """Groups that began to train, whether or not they could be looked at"""
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self) -> None:
        """Judge what waits for others that will not come, and hear no more."""
        with self._lock:
            self._open = False
            for group in self._groups.values():
                self._conclude(group)
            for record in self._left():
                self._judge_alone(record)
        family = socket.AF_UNIX if isinstance(self.address, str) else socket.AF_INET
        with suppress(OSError), socket.socket(family) as knock:  # wakes the thread, which ends then
            knock.connect(self.address)
        self._listener.close()

    def _listen(self) -> None:
        while self._open:
            try:
                connection = self._listener.accept()
            except Exception:  # one that knows no key, or the listener's end
                continue
            if not self._open:
                return connection.close()
            threading.Thread(target=self._hear, args=(connection,), daemon=True).start()

    def _hear(self, connection: Connection) -> None:
        try:
            said = parse_json(connection.recv_bytes(1 << 16), LOG_RECORD)
            name, expected, failed = (
                json.dumps(said["group"]),
                int(said["expected"]),
                said.get("failed"),
            )
            folder = Path(said["folder"])
            self._heard.add(folder)
            record = left_behind(folder, str(failed)) if failed else read_record(folder)
        except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
            self._lose(f"a process of the run can't be understood: {error!r}")
            connection.close()
            return
        if failed:
            self._lose(f"the run can't be looked at: {failed}")
        with self._lock:
            group = self._groups.setdefault(name, _Group(expected))
            if group.judged:
                _answer(connection, go=True)
                return
            group.arrived.append((connection, record))
            if len(group.arrived) >= group.expected:
                self._conclude(group)
            elif group.timer is None:
                group.timer = threading.Timer(PATIENCE, self._conclude, (group,))
                group.timer.daemon = True
                group.timer.start()

    def _conclude(self, group: _Group) -> None:
        with self._lock:
            if group.judged:
                return
            group.judged = True
            if group.timer is not None:
                group.timer.cancel()
            if len(group.arrived) < group.expected:
                self._complain(
                    f"{len(group.arrived)} of {group.expected} processes came: judged with these"
                )
            records = [record for _, record in group.arrived if record is not None]
            go = True
            self.reached += 1
            try:
                if records:
                    go = self._judge(records)
            except Exception as error:
                self._lose(f"the audit failed: {type(error).__name__}: {error}")
            finally:
                for connection, _ in group.arrived:
                    _answer(connection, go=go)

    def _left(self) -> Iterator[Record]:
        """What processes recorded that ended during their audit, and so told nobody."""
        for file in sorted(self._folder.glob("*/record.json")):
            if (
                file.parent not in self._heard
                and (record := left_behind(file.parent, ENDED)) is not None
            ):
                yield record

    def _judge_alone(self, record: Record) -> None:
        self.reached += 1
        self._lose(f"the run can't be looked at: {ENDED}")
        try:
            self._judge([record])
        except Exception as error:
            self._lose(f"the audit failed: {type(error).__name__}: {error}")


def left_behind(folder: Path, reason: str) -> Record | None:
    """What was recorded before an audit was lost for this reason; None where nothing was."""
    try:
        record = read_record(folder)
    except (OSError, ValueError, KeyError):
        return None
    record.facts["lost"] = reason
    return record


def _answer(connection: Connection, *, go: bool) -> None:
    try:
        connection.send_bytes(b"go" if go else b"stop")
        connection.close()
    except OSError:
        pass
