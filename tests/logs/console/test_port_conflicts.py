"""Processes of one run that try to open the same port, and runs whose port another one holds."""

from __future__ import annotations

import pytest

from truetune.logs.console.port_conflicts_within_run import PortConflict, PortConflictReader
from truetune.logs.console.strip_line_prefixes import strip_codes_and_prefixes

RAISED = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port:"
    " {port}, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
)
BOUND = (
    "[W512 09:14:{second}.574102934 socket.cpp:464] [c10d] The server socket has failed to bind to 0.0.0.0:29517"
    " (errno: 98 - Address already in use)."
)
LAUNCHER = "W0512 09:14:22.218000 {pid} torch/distributed/run.py:774] Setting OMP_NUM_THREADS"
TASKS = RAISED.format(port=29517)


def conflict(*lines: str) -> PortConflict | None:
    """What the reader makes of lines."""
    reader = PortConflictReader()
    for number, line in enumerate(lines, 1):
        reader.add_line(line, strip_codes_and_prefixes(line, number).process)
    return reader.finish()


@pytest.mark.parametrize(
    ("lines", "who"),
    [
        ([f"1: {TASKS}", f"3: {TASKS}"], "tasks 1, 3"),
        ([f"[1,1]<stderr>: {TASKS}", f"[1,2]<stderr>: {TASKS}"], "tasks 1, 2"),
        ([f"{n}: {BOUND.format(second=20 + n)}" for n in (1, 2, 3)], "tasks 1, 2, 3"),
        (
            [LAUNCHER.format(pid=11), LAUNCHER.format(pid=12), LAUNCHER.format(pid=13)]
            + [TASKS, TASKS],
            "2 launchers",
        ),
        (
            [
                f"0: {TASKS}",
                f"1: {TASKS}",
                "srun: error: ga014: tasks 0-1: Exited with exit code 1",
            ],
            "tasks 0, 1 of ga014",
        ),
    ],
)
def test_processes_of_one_run(lines: list[str], who: str) -> None:
    found = conflict(*lines)
    assert found is not None
    assert (found.port, found.describe_tasks) == ("29517", who)


@pytest.mark.parametrize(
    "lines",
    [
        [TASKS],
        [f"0: {TASKS}", f"0: {BOUND.format(second=21)}"],
        # One launcher, two tries of a user.
        [LAUNCHER.format(pid=11), TASKS, TASKS],
        [f"0: {BOUND.format(second=10)}", f"1: {BOUND.format(second=55)}"],
        # One task on each machine: runs of another user may hold the port on both.
        [
            f"0: {TASKS}",
            f"4: {TASKS}",
            "srun: error: ga014: task 0: Exited with exit code 1",
            "srun: error: ga015: task 4: Exited with exit code 1",
        ],
        ["0: OSError: [Errno 98] Address already in use", "1: loss 2.0"],
        [f"0: {RAISED.format(port=29500)}", f"1: {RAISED.format(port=29600)}"],
    ],
)
def test_ports_that_others_hold(lines: list[str]) -> None:
    assert conflict(*lines) is None
