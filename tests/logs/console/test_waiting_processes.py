"""Logs of runs whose processes wait for one another: the time-out leads, and says what each rank waited in.

The texts are written here in the shapes that public logs have; none is copied.
"""

# ruff: noqa: E501 - lines of logs stand as they are printed
from __future__ import annotations

from pathlib import Path

import pytest

from tests.logs.console.test_output import CHILD_FAILED, RECORD, found, traceback

TIMEOUT = (
    "[rank{0}]:[E1112 15:47:31.536 ProcessGroupNCCL.cpp:685] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={1}, OpType={2}, NumelIn={3}, NumelOut={3}, Timeout(ms)=600000) ran for 600088 milliseconds before timing out."
)
EXITED = CHILD_FAILED.replace("exitcode: 1", "exitcode: -6").replace(
    "exitcode  : 1", "exitcode  : -6"
)


def timeouts(*ranks: tuple[int, int, str, int]) -> str:
    """A log that ends in time-outs, and in the launcher's report of them."""
    lines = (TIMEOUT.format(*rank) for rank in ranks)
    return "\n".join((RECORD, RECORD, "saving step-200", *lines, EXITED)) + "\n"


def said(folder: Path, text: str) -> str:
    """All that the findings on a log say."""
    return "\n".join(f"{code} {message}" for code, message in found(folder, text).items())


def test_the_timeout_leads_and_not_the_launcher(tmp_path: Path) -> None:
    text = said(
        tmp_path,
        timeouts((0, 91, "_ALLGATHER_BASE", 262669312), (1, 91, "_ALLGATHER_BASE", 54528000)),
    )
    assert text.startswith("run-was-killed")
    assert "ChildFailedError" not in text
    assert "rank 0 waited in _ALLGATHER_BASE of 262,669,312 elements" in text
    assert "gathering of parameters under FSDP" in text
    assert "these operations differ: one rank runs code that the others don't" in text
    assert "printed last before it: saving step-200" in text


@pytest.mark.parametrize(
    ("ranks", "part", "is_there"),
    [
        (((0, 7, "ALLREDUCE", 1), (1, 7, "ALLREDUCE", 1)), "operations differ", False),
        (((0, 7, "ALLREDUCE", 1), (1, 7, "ALLREDUCE", 1)), "ranks 0, 1 waited in ALLREDUCE", True),
        (((0, 8, "ALLGATHER", 4), (1, 7, "ALLREDUCE", 9)), "operations differ", True),
        (((1, 7, "ALLREDUCE", 1), (2, 7, "ALLREDUCE", 1)), "rank 0 printed no time-out", True),
        (((0, 7, "ALLREDUCE", 1), (1, 7, "ALLREDUCE", 1)), "printed no time-out", False),
    ],
)
def test_what_ranks_waited_in(
    ranks: tuple[tuple[int, int, str, int], ...], part: str, is_there: bool, tmp_path: Path
) -> None:
    assert (part in said(tmp_path, timeouts(*ranks))) == is_there


GRADIENTS = (91, "ALLREDUCE", 6684672)
OWN_LINES = "[rank 0] val 0.98 bad 0\n[rank 1] val 1.03 bad 3\n[rank 1] no improvement for 3 evaluations, stopping\n"
SAVING = "[rank 0] val 0.98\n[rank 1] val 0.97\n[rank 0] writing checkpoint\n"


@pytest.mark.parametrize(
    ("lines", "odd", "part"),
    [
        (OWN_LINES, (1, 91, "ALLREDUCE", 1), "rank 1 printed last before it: no improvement for 3 evaluations, stopping: it left the loop"),
        (OWN_LINES, (1, 91, "ALLREDUCE", 1), "rank 1 is at another place of the code than most others"),
        (OWN_LINES, (1, 91, "ALLREDUCE", 1), "a barrier, or the sum of figures"),
        (OWN_LINES, (1, 90, "ALLREDUCE", 6684672), "rank 1 is 1 operations behind most others"),
        (OWN_LINES, (1, 95, "ALLREDUCE", 1), "rank 1 is 4 operations ahead of most others"),
        (SAVING, (0, 91, "ALLGATHER", 12), "rank 0 printed last before it: writing checkpoint"),
        ("[rank 2] skipping batch: loss is nan\n", (2, 92, "ALLREDUCE", 6684672), "loss is nan: it left the loop or skipped a step"),
    ],
)  # fmt: skip
def test_which_rank_stands_apart(
    lines: str, odd: tuple[int, int, str, int], part: str, tmp_path: Path
) -> None:
    others = [(rank, *GRADIENTS) for rank in range(4) if rank != odd[0]]
    text = said(tmp_path, timeouts(*others, odd).replace("saving step-200", lines))
    assert part in text


@pytest.mark.parametrize("lines", ["[rank 0] step 200\n[rank 1] step 200\n", "", "epoch 0\n"])
def test_ranks_that_wait_in_the_same_operation_stand_together(lines: str, tmp_path: Path) -> None:
    ranks = [(rank, *GRADIENTS) for rank in range(4)]
    text = said(tmp_path, timeouts(*ranks).replace("saving step-200", lines))
    assert "ranks 0, 1, 2, 3 waited in ALLREDUCE" in text
    assert "most others" not in text
    assert "left the loop" not in text


def test_an_exception_of_a_rank_stays_before_the_timeouts(tmp_path: Path) -> None:
    error = traceback("KeyError: 'messages'")
    text = said(tmp_path, f"{error}\n{timeouts((0, 7, 'ALLREDUCE', 1))}".replace(RECORD + "\n", ""))
    assert "KeyError" in text
    assert "run-was-killed" not in text


LAUNCHER = "I1118 09:02:11.341000 18 torch/distributed/launcher/api.py:204]   {0:<16} : {1}"
MET_NOT = traceback(
    "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError", file="/opt/venv/bin/torchrun"
)


def launchers(*settings: tuple[str, object]) -> str:
    """A log of launchers with these settings, which never meet."""
    return "\n".join((*(LAUNCHER.format(*setting) for setting in settings), MET_NOT)) + "\n"


@pytest.mark.parametrize(
    ("settings", "part", "is_there"),
    [
        (
            (("max_nodes", 2), ("run_id", 4), ("rdzv_endpoint", "localhost:29500")),
            "is localhost:29500 with 2 nodes",
            True,
        ),
        (
            (("max_nodes", 2), ("run_id", 4), ("rdzv_endpoint", "127.0.0.1:29500")),
            "the node itself",
            True,
        ),
        (
            (("max_nodes", 2), ("run_id", 4), ("rdzv_endpoint", "gpu017:29500")),
            "the node itself",
            False,
        ),
        (
            (("max_nodes", 1), ("run_id", 4), ("rdzv_endpoint", "localhost:0")),
            "the node itself",
            False,
        ),
        (
            (("max_nodes", 2), ("run_id", "a"), ("run_id", "b"), ("rdzv_endpoint", "n:1")),
            "different rdzv ids",
            True,
        ),
        (
            (("max_nodes", 2), ("run_id", "a"), ("run_id", "a"), ("rdzv_endpoint", "n:1")),
            "different rdzv ids",
            False,
        ),
        (
            (("max_nodes", 2), ("rdzv_endpoint", "n:1"), ("rdzv_endpoint", "n:2")),
            "different endpoints",
            True,
        ),
    ],
)
def test_nodes_that_never_meet(
    settings: tuple[tuple[str, object], ...], part: str, is_there: bool, tmp_path: Path
) -> None:
    text = said(tmp_path, launchers(*settings))
    assert "known as nodes-did-not-meet" in text
    assert "watchdog" not in text
    assert (part in text) == is_there


WORK = (
    "Running tokenizer on dataset (num_proc=1):   9%|9         | {}/2969526"
    " [29:00<4:45:38, 159.06 examples/s]"
)


@pytest.mark.parametrize(
    ("last_lines", "is_named"),
    [
        ((WORK.format(273000),), True),
        ((WORK.format(2969526),), False),
        ((WORK.format(273000), "saving step-200"), False),
        ((" 12%|#2        | 60/500 [01:00<07:20,  1.00s/it]",), False),
    ],
)
def test_work_that_the_others_waited_for_is_named(
    last_lines: tuple[str, ...], is_named: bool, tmp_path: Path
) -> None:
    """A bar with a description that had not come to its end is what one rank did; another line ends it."""
    lines = (RECORD, *last_lines, TIMEOUT.format(1, 1, "ALLREDUCE", 1), EXITED)
    text = said(tmp_path, "\n".join(lines) + "\n")
    assert ("under way when the time was over: Running tokenizer" in text) is is_named


def test_the_first_time_out_says_what_was_under_way(tmp_path: Path) -> None:
    """Where nothing but bars came before it, a later time-out, behind other lines, doesn't replace what was seen."""
    lines = (
        WORK.format(273000),
        TIMEOUT.format(1, 1, "ALLREDUCE", 1),
        "terminate called after throwing an instance of 'c10::DistBackendError'",
        TIMEOUT.format(2, 1, "ALLREDUCE", 1),
        EXITED,
    )
    text = said(tmp_path, "\n".join(lines) + "\n")
    assert "under way when the time was over: Running tokenizer" in text
    assert "terminate called" not in text.replace("cause", "")
