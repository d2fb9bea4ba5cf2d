"""Refuses a folder that holds several runs, before one of them is taken for all.

A folder of experiments looks like a run: its newest log would be read, and a verdict would stand over a run that nobody
named. States are told apart by their first record, which a resumed training keeps. Only the head of each state is read,
since folders of hundreds of checkpoints with long histories are common.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.errors import UsageError
from truetune.logs.run_log import checkpoint_step
from truetune.parsing.input_limits import LOG_RECORD
from truetune.parsing.parse_json_within_limits import RowDecoder

STATE_FILE = "trainer_state.json"
HEAD_BYTES = 1 << 16
"""Bytes of a trainer_state.json in which its step and its first record stand"""
GLOBAL_STEP = re.compile(rb'"global_step":\s*(\d{1,15})\b')
LOG_HISTORY = re.compile(r'"log_history":\s*\[\s*')
RUN_FILES = ("trainer_log.jsonl", "logging.jsonl", "run.json")
"""What else only the folder of one run holds"""
MAX_DEPTH = 2
"""Levels of folders in which runs are looked for"""
MAX_LISTED_RUNS = 12
"""Chosen, not measured: what a terminal shows without scrolling"""


class FoundRun(NamedTuple):
    """One run."""

    path: Path
    date: float
    """When its state was written"""
    step: int | None


def refuse_multiple_runs(folder: Path) -> None:
    """Raises UsageError where a folder holds runs in folders of their own, or the checkpoints of several trainings."""
    unsorted = (
        _trainings_in_one_folder(folder)
        if _is_run_folder(folder)
        else find_runs_in_subfolders(folder)
    )
    runs = sorted(unsorted, key=lambda run: -run.date)
    if len(runs) < 2:
        return
    lines = [_run_date_and_step_as_text(run) for run in runs[:MAX_LISTED_RUNS]]
    if len(runs) > MAX_LISTED_RUNS:
        lines.append(f"and {len(runs) - MAX_LISTED_RUNS} more")
    raise UsageError(
        f"{folder}: this holds {len(runs)} runs; one was expected. Those found, the newest"
        " first:\n  "
        + "\n  ".join(lines)
        + f"\nName the one that is meant, {runs[0].path} say; for two side by side: "
        f"truetune report {runs[0].path} {runs[1].path}"
    )


def last_step_of_state(state: Path) -> int | None:
    """The last step in the head of a trainer_state.json; None if its head does not say."""
    with state.open("rb") as file:
        match = GLOBAL_STEP.search(file.read(HEAD_BYTES))
    return int(match[1]) if match else None


def _run_date_and_step_as_text(run: FoundRun) -> str:
    """A run as text: `PATH 2025-03-01 10:00, step 500`."""
    date = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.date))
    return f"{run.path}  {date}" + ("" if run.step is None else f", step {run.step:,}")


def _is_run_folder(folder: Path) -> bool:
    """Is it the folder of a run, by what its trainer wrote?"""
    return bool(_trainer_state_files_of_run(folder)) or any(
        (folder / name).is_file() for name in RUN_FILES
    )


def _trainer_state_files_of_run(folder: Path) -> list[Path]:
    """The trainer_state.json of a run's folder first, then those of its checkpoints."""
    children = [child for child in folder.iterdir() if checkpoint_step(child) is not None]
    return [state for child in (folder, *children) if (state := child / STATE_FILE).is_file()]


def find_runs_in_subfolders(folder: Path, depth: int = MAX_DEPTH) -> Iterator[FoundRun]:
    """The runs below a folder, each in a folder of its own."""
    for child in sorted(folder.iterdir()):
        # links lead to other places, or in a circle (`latest` beside the run itself)
        if not child.is_dir() or child.is_symlink() or child.name.startswith("."):
            continue
        if _is_run_folder(child):
            newest = max(
                _trainer_state_files_of_run(child),
                key=lambda state: last_step_of_state(state) or 0,
                default=None,
            )
            at = newest or next(child / name for name in RUN_FILES if (child / name).is_file())
            yield FoundRun(
                child, at.stat().st_mtime, last_step_of_state(newest) if newest else None
            )
        elif depth > 1:
            yield from find_runs_in_subfolders(child, depth - 1)


def _trainings_in_one_folder(folder: Path) -> Iterator[FoundRun]:
    """The trainings whose states are in one folder, each by its last: a resumed training keeps its
    first record.
    """
    trainings: dict[str, list[Path]] = {}
    for state in _trainer_state_files_of_run(folder):
        first = _first_record_of_state(state)
        if first:
            trainings.setdefault(first, []).append(state)
    for states in trainings.values():
        last = max(
            states, key=lambda state: (last_step_of_state(state) or 0, state.parent == folder)
        )
        yield FoundRun(
            last if last.parent == folder else last.parent,
            last.stat().st_mtime,
            last_step_of_state(last),
        )


def _first_record_of_state(state: Path) -> str:
    """The first record of a trainer_state.json; empty where there is none yet, or its head is damaged."""
    with state.open("rb") as file:
        head = file.read(HEAD_BYTES).decode("utf-8", "replace")
    begins = LOG_HISTORY.search(head)
    if begins is None:
        return ""
    try:
        record = RowDecoder(LOG_RECORD).read_at(head, begins.end()).value
        return json.dumps(record, sort_keys=True)
    except (ValueError, TypeError):
        return ""
