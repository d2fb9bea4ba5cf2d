"""Logs of processes that change the same files, and of ranks of which one alone prints a line; and near misses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.logs.console.test_waiting_processes import said, timeouts

STEPS = "step 10 loss 1.5\nstep 20 loss 1.2\n"
RACED = "delete, rename or make the same files"


def raised(code: str, error: str, *inner: tuple[str, str, str], prefix: str = "") -> str:
    """A traceback of a script, with further frames (file, function, code)."""
    lines = [
        "Traceback (most recent call last):",
        '  File "/home/u/train.py", line 40, in save',
        f"    {code}",
    ]
    for file, function, text in inner:
        lines += [f'  File "{file}", line 7, in {function}', f"    {text}"]
    return "".join(f"{prefix}{line}\n" for line in (*lines, error))


SHUTIL = "/usr/lib/python3.11/shutil.py"
GONE = "FileNotFoundError: [Errno 2] No such file or directory: 'out/step-5/a.bin'"
UNLINK = (SHUTIL, "_rmtree_safe_fd", "os.unlink(entry.name, dir_fd=topfd)")


@pytest.mark.parametrize(
    "log",
    [
        raised("shutil.rmtree(d)", GONE, UNLINK),
        raised(
            "shutil.rmtree(d)",
            "OSError: [Errno 39] Directory not empty: 'out/step-5'",
            (SHUTIL, "rmtree", "os.rmdir(path, dir_fd=dir_fd)"),
            prefix="[rank1]: ",
        ),
        raised("os.remove(path)", GONE, prefix="[rank1]: ")
        + raised("os.remove(path)", GONE, prefix="[rank2]: "),
        raised("path.rename(last)", GONE, prefix="[default3]:")
        + raised("path.rename(last)", GONE, prefix="[default1]:"),
        raised(
            "os.makedirs(out)", "FileExistsError: [Errno 17] File exists: 'out'", prefix="[rank3]: "
        )
        + raised(
            "os.makedirs(out)", "FileExistsError: [Errno 17] File exists: 'out'", prefix="[rank2]: "
        ),
    ],
    ids=["inside of a tree", "not empty", "removed", "renamed", "made"],
)
def test_processes_that_change_the_same_files(tmp_path: Path, log: str) -> None:
    assert RACED in said(tmp_path, STEPS + log)


@pytest.mark.parametrize(
    "log",
    [
        raised("open('data.jsonl')", GONE, prefix="[rank0]: ")
        + raised("open('data.jsonl')", GONE, prefix="[rank3]: "),
        raised("os.remove(path)", GONE),
        raised("os.remove(path)", GONE, prefix="[rank0]: ")
        + raised("os.remove(path)", GONE, prefix="[rank1]: "),
        raised(
            "shutil.rmtree(d)", GONE, (SHUTIL, "rmtree", "orig_st = os.lstat(path, dir_fd=dir_fd)")
        ),
        raised("os.makedirs(out)", "FileExistsError: [Errno 17] File exists: 'out'"),
        raised("shutil.rmtree(d)", "PermissionError: [Errno 13] Permission denied: 'out'", UNLINK),
    ],
    ids=[
        "a file that is read",
        "one process",
        "all processes",
        "no folder",
        "a folder that was there",
        "no right",
    ],
)
def test_paths_that_are_wrong(tmp_path: Path, log: str) -> None:
    assert RACED not in said(tmp_path, STEPS + log)


WAITED = ((0, 91, "ALLREDUCE", 65536), (1, 91, "ALLREDUCE", 65536), (2, 90, "_ALLGATHER_BASE", 1))


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        ("[rank 2] step 7: empty batch, skipping", "2"),
        ("[rank2]: WARNING loss is nan at step 7", "2"),
        ("rank=2 step 7 no labels, skipped", "2"),
        ("[default2]:step 7: caught exception, continue", "2"),
        ("(rank 2) dropping a sample that is too long", "2"),
    ],
)
def test_a_line_of_one_rank_is_named(tmp_path: Path, line: str, rank: str) -> None:
    text = timeouts(*WAITED).replace(
        "saving step-200", f"{line}\nsaving step-200\n[rank2]: step 8 ok\nstep 9 loss 1.0"
    )
    assert f"only rank {rank} printed" in said(tmp_path, text)


@pytest.mark.parametrize(
    "lines",
    [
        "".join(f"[rank {n}] step 7: no labels, skipping\n" for n in range(3)),
        "[rank 2] step 7 loss 1.25\n",
        "no labels in row 7, skipping\n",
    ],
    ids=["all ranks", "a loss", "no rank"],
)
def test_lines_of_all_ranks_are_not(tmp_path: Path, lines: str) -> None:
    text = timeouts(*WAITED).replace("saving step-200", lines + "saving step-200")
    assert "only rank" not in said(tmp_path, text)


def test_a_gather_of_a_figure_gathers_no_parameters(tmp_path: Path) -> None:
    text = said(tmp_path, timeouts(*WAITED))
    assert "of 1 elements, number 90: a figure or result" in text
    assert "parameters" not in text
