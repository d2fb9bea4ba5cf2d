"""A folder with several runs is refused, and says which; one run in several pieces is one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from truetune.errors import DataError, UsageError
from truetune.logs.read_run_log import read_run


def state(folder: Path, *losses: float, date: float = 1_700_000_000) -> Path:
    """A trainer_state.json of so many steps; its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    history = [{"loss": loss, "step": step} for step, loss in enumerate(losses, 1)]
    file = folder / "trainer_state.json"
    file.write_text(json.dumps({"global_step": len(losses), "log_history": history}, indent=2))
    os.utime(file, (date, date))
    return folder


def refused(folder: Path) -> str:
    with pytest.raises(UsageError) as caught:
        read_run(folder)
    return str(caught.value)


def test_runs_in_folders_of_their_own_are_listed_the_newest_first(tmp_path: Path) -> None:
    old, new = tmp_path / "group" / "old", tmp_path / "new"
    state(old / "checkpoint-3", 3, 2, 1)
    state(new, 5, 4, date=1_800_000_000)
    said = refused(tmp_path).splitlines()
    assert "this holds 2 runs; one was expected" in said[0]
    assert said[1].startswith(f"  {new}  2027-01-1")
    assert said[1].endswith("step 2")
    assert said[2].startswith(f"  {old}  2023-11-1")
    assert said[2].endswith("step 3")
    assert (
        said[3]
        == f"Name the one that is meant, {new} say; for two side by side: truetune report {new}"
        f" {old}"
    )


def test_checkpoints_of_two_trainings_in_one_folder_are_told_apart(tmp_path: Path) -> None:
    state(tmp_path / "checkpoint-1", 3)
    state(tmp_path / "checkpoint-3", 3, 2, 1)
    assert read_run(tmp_path).last_step == 3
    state(tmp_path / "checkpoint-2", 9, 8)
    said = refused(tmp_path)
    assert "2 runs" in said
    assert "checkpoint-1 " not in said
    assert f"{tmp_path / 'checkpoint-2'}  " in said
    assert f"{tmp_path / 'checkpoint-3'}  " in said
    assert read_run(tmp_path / "checkpoint-2").last_step == 2


def test_a_resumed_training_is_one(tmp_path: Path) -> None:
    state(tmp_path / "checkpoint-3", 3, 2, 1)
    state(tmp_path, 3, 2, 0.5, 0.4)
    assert read_run(tmp_path).last_step == 4


def test_one_run_below_is_named(tmp_path: Path) -> None:
    state(tmp_path / "run-1", 3, 2)
    with pytest.raises(DataError, match=r"There is a run below it: .*run-1"):
        read_run(tmp_path)


def test_a_long_list_is_cut_and_counted(tmp_path: Path) -> None:
    for number in range(14):
        state(tmp_path / f"run-{number}", 2, 1)
    said = refused(tmp_path)
    assert said.count("step 2") == 12
    assert "\n  and 2 more\n" in said
