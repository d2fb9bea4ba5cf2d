"""Finds processes of one run that try to open the same port, from the console output.

One process of a run opens the port at which all meet. Where a process of another run holds it, that one process fails.
Where several tasks fail with the same port at the same time, they are rivals of each other: each started a launcher, or
each takes itself for the first process. No other run and no other port has a part in it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

TAKEN_PORT = re.compile(
    r"(?:\]|\d):(?P<bound>\d{2,5}) \(errno: 98\b|\bport: (?P<listened>\d{2,5}),.{0,60}EADDRINUSE"
)
FAILED_TO_LISTEN = re.compile(r"Error: .{0,80}\bport: \d{2,5},.{0,60}EADDRINUSE")
"""The exception of one process; other lines come several times from each"""
LAUNCHER_LINE = re.compile(r"\b(?P<pid>\d{2,9}) torch/distributed/run\.py:\d+\]")
"""What each torchrun prints when it starts, with its process"""
TASKS_OF_HOST = re.compile(
    r"^srun: error: (?P<host>[\w.-]{1,64}): tasks? (?P<tasks>[\d,-]{1,200}): Exited"
)
CLOCK = re.compile(r"\b(\d\d):(\d\d):(\d\d)\.\d")
# Chosen: tasks of one step start within seconds, and a user who tries again needs longer to type.
MAX_SECONDS = 30
"""Between the failures of rivals"""
MAX_PROCESSES = 1024
"""Chosen, not measured: it bounds the memory"""


@dataclass(frozen=True, slots=True)
class PortConflict:
    """The port that processes could not open."""

    port: str
    tasks: tuple[int, ...]
    """Those that failed, as the output numbers them; empty where it does not"""
    failures: int
    host: str
    """On which they ran, where the output says it"""
    launchers: int
    """Launchers that the output shows"""

    @property
    def describe_tasks(self) -> str:
        """The processes in conflict as text: `tasks 0, 1, 3 of ga014`."""
        named = ", ".join(map(str, self.tasks[:8])) + ("" if len(self.tasks) <= 8 else ", ...")
        text = f"tasks {named}" if self.tasks else f"{self.failures} launchers"
        return text + (f" of {self.host}" if self.host else "")


@dataclass(slots=True)
class PortConflictReader:
    """Collects the ports that could not be opened, and by whom."""

    _tasks_of: dict[str, dict[str, None]] = field(default_factory=dict)
    _failures: dict[str, int] = field(default_factory=dict)
    _seconds: list[int] = field(default_factory=list)
    """Of the first and the last failure, on the day's clock"""
    _launchers: dict[str, None] = field(default_factory=dict)
    _hosts: dict[str, set[int]] = field(default_factory=dict)

    def add_line(self, text: str, process: str) -> None:
        """Read one line as it is, and the process that its prefixes name."""
        if "torch/distributed/run.py" in text:
            launcher = LAUNCHER_LINE.search(text)
            if launcher is not None and len(self._launchers) < MAX_PROCESSES:
                self._launchers[launcher["pid"]] = None
        elif text.startswith("srun: error: "):
            self._read_tasks_of_host(text)
        elif "errno: 98" in text or "EADDRINUSE" in text:
            self._read_port_failure(text, process)

    def _read_tasks_of_host(self, text: str) -> None:
        """Read which tasks ended on which host."""
        match = TASKS_OF_HOST.match(text)
        if match is not None and len(self._hosts) < MAX_PROCESSES:
            self._hosts.setdefault(match["host"], set()).update(_parse_task_numbers(match["tasks"]))

    def _read_port_failure(self, text: str, process: str) -> None:
        """Read a line on a port that could not be opened."""
        match = TAKEN_PORT.search(text)
        if match is None or len(self._tasks_of) >= MAX_PROCESSES:
            return
        port = match["bound"] or match["listened"]
        tasks = self._tasks_of.setdefault(port, {})
        if process.isdecimal() and len(tasks) < MAX_PROCESSES:
            tasks[process] = None
        self._failures[port] = self._failures.get(port, 0) + (
            FAILED_TO_LISTEN.search(text) is not None
        )
        clock = CLOCK.search(text)
        if clock is not None:
            hours, minutes, seconds = map(int, clock.groups())
            now = 3600 * hours + 60 * minutes + seconds
            self._seconds = [min([now, *self._seconds]), max([now, *self._seconds])]

    def finish(self) -> PortConflict | None:
        """The port that several processes of the run tried to open at the same time; None if it was
        one process, or at other times.
        """
        if self._seconds and self._seconds[1] - self._seconds[0] > MAX_SECONDS:
            return None
        conflicts = (self._conflict_at_port(port) for port in self._tasks_of)
        return next((conflict for conflict in conflicts if conflict is not None), None)

    def _conflict_at_port(self, port: str) -> PortConflict | None:
        """The processes that failed at a port, if they are several on one machine; None otherwise."""
        tasks = tuple(sorted(map(int, self._tasks_of[port])))
        host = self._host_of_several_tasks(tasks)
        if host:
            tasks = tuple(task for task in tasks if task in self._hosts[host])
        elif self._hosts:
            return None  # one on each machine: something of another run may hold the port on all of them
        failures = self._failures.get(port, 0)
        launchers = len(self._launchers)
        are_unnumbered = not tasks and failures > 1 and launchers > 1
        if len(tasks) < 2 and not are_unnumbered:
            return None
        return PortConflict(port, tasks, failures, host, launchers)

    def _host_of_several_tasks(self, tasks: Collection[int]) -> str:
        """The first host on which several of the tasks ran; empty where the output names none."""
        several = (name for name, own in self._hosts.items() if len(own.intersection(tasks)) > 1)
        return next(several, "")


def _parse_task_numbers(text: str) -> set[int]:
    """The task numbers in a range text: `0-1,3`."""
    numbers: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (not last or last.isdecimal()):
            end = min(int(last or first), int(first) + MAX_PROCESSES)
            numbers.update(range(int(first), end + 1))
    return numbers
