"""Runs that were killed, told to end or out of disk go on as if nothing had been; folders that are others' are left."""

from __future__ import annotations

import json
import os
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import filelock
import pytest
import torch

from tests.preloaded import libraries_python
from truetune.checkpoint.read_run_and_check_checkpoints import (
    RUN_FILE,
    WHOLE_FILE,
    find_checkpoint_fault,
)
from truetune.errors import UsageError
from truetune.training.claim_or_resume_run_folder import (
    LOCK_NAME,
    inspect_folder_and_drop_partial_checkpoint,
    lock_folder,
)
from truetune.training.save_checkpoints import (
    collect_sums_since_last_log,
    mark_checkpoint_whole,
    restore_log_sums,
)
from truetune.training.tell_files_of_run_from_other_files import remove_checkpoint_and_name_remains
from truetune.training.write_run_record import describe_input_differences

CASE = "lora:full8+save8+sigint10"


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What became of it. More cases, of DPO and of all weights: `python -m tests.training.killed FOLDER CASE...`"""
    folder = tmp_path_factory.mktemp("killed")
    cache = {"TRUETUNE_CACHE": str(folder / "cache")}
    command = [libraries_python(), "-m", "tests.training.killed", str(folder), CASE]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **cache}, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_run_goes_on_as_if_it_had_never_stopped(compared: dict[str, Any]) -> None:
    last, entries = compared["runs"][-1], compared["entries"]
    assert (last["code"], last["status"]) == (0, "finished"), last["said"]
    assert compared["log"], entries
    assert compared["weights"]
    assert [entry["step"] for entry in entries if "loss" in entry] == [1, 3, 6, 9, 12]
    assert [entry["step"] for entry in entries if "eval_loss" in entry] == [4, 8, 12]
    assert all("loss/stop token" in entry for entry in entries if "loss" in entry)


def test_each_trouble_leaves_a_whole_checkpoint(compared: dict[str, Any]) -> None:
    full, killed, told, last = compared["runs"]
    assert (full["code"], full["status"], full["left"]) == (1, "training", ["checkpoint-4"])
    assert "checkpoint-8: the checkpoint could not be written" in full["said"]
    assert "checkpoint-4 is whole, and the same command resumes from it" in full["said"]
    assert "continuing from checkpoint-4" in killed["said"]
    assert (killed["code"], killed["status"], killed["left"]) == (
        -9,
        "training",
        ["checkpoint-4", "checkpoint-8"],
    )
    assert "checkpoint-8 is not whole (it has no whole.json" in told["said"]
    assert "continuing from checkpoint-4" in told["said"]
    assert (told["code"], told["status"], told["left"]) == (
        130,
        "interrupted",
        ["checkpoint-8", "checkpoint-10"],
    )
    assert "stopping after this step" in told["said"]
    assert "stopped after step 10: the same command resumes from there" in told["said"]
    assert "continuing from checkpoint-10" in last["said"]


class Summing:
    """What a trainer of TRL's sums, and transformers' Trainer."""

    def __init__(self) -> None:
        self._metrics: Any = {"train": defaultdict(list), "eval": defaultdict(list)}
        self._stored_metrics: Any = defaultdict(lambda: defaultdict(list))
        self._tr_loss, self._total_loss_scalar = torch.tensor(0.0), 0.0
        self._globalstep_last_logged = self._total_train_tokens = 0


def test_what_was_summed_is_put_back_to_the_bit() -> None:
    before, after = Summing(), Summing()
    before._metrics["train"]["rewards/margins"] += [0.1, 1 / 3]
    before._stored_metrics["train"]["nll_loss"] += [torch.tensor(0.7), torch.tensor(2.0)]
    before._tr_loss += 1 / 3
    before._globalstep_last_logged, before._total_train_tokens = 3, 700
    restore_log_sums(after, json.loads(json.dumps(collect_sums_since_last_log(before))))
    assert after._metrics == before._metrics
    assert after._stored_metrics["train"]["nll_loss"] == [torch.tensor(0.7).item(), 2.0]
    assert torch.equal(after._tr_loss, before._tr_loss)
    assert (after._globalstep_last_logged, after._total_train_tokens) == (3, 700)
    assert after._total_loss_scalar == -before._tr_loss.item()


def a_run(folder: Path, inputs: dict[str, Any], *steps: int, status: str = "training") -> Path:
    """The folder of a run with some whole checkpoints."""
    for step in steps:
        checkpoint = folder / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "optimizer.pt").write_bytes(b"state" * 100)
        mark_checkpoint_whole(checkpoint, resumes=True)
    files: dict[str, Any] = {}
    facts = {
        "format": 1,
        "status": status,
        "key": "0" * 40,
        "inputs": inputs,
        "step": 0,
        "resumed": [],
        "ended": "now",
        "files": files,
    }
    (folder / RUN_FILE).write_text(json.dumps(facts), encoding="utf-8")
    return folder


def test_a_new_folder_begins(tmp_path: Path) -> None:
    with lock_folder(tmp_path / "new"):
        assert (
            inspect_folder_and_drop_partial_checkpoint(tmp_path / "new", {"rows": 1}).checkpoint
            is None
        )


def test_a_strangers_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(UsageError, match=r"holds thesis\.tex and no run\.json.*-o"):
        inspect_folder_and_drop_partial_checkpoint(tmp_path, {"rows": 1})


def test_another_run_is_left_alone(tmp_path: Path) -> None:
    there = {"settings": {"training": {"learning_rate": 0.1}}, "base": "a", "data": "x"}
    here = {"settings": {"training": {"learning_rate": 0.2}}, "base": "b", "data": "x"}
    a_run(tmp_path, there, 4)
    with pytest.raises(
        UsageError, match=r"the base model; training\.learning_rate \(0\.1 there, 0\.2 now\).*-o"
    ):
        inspect_folder_and_drop_partial_checkpoint(tmp_path, here)
    assert describe_input_differences(here | {"base": None}, there) == [
        "training.learning_rate (0.1 there, 0.2 now)"
    ]


def test_what_the_run_was_writing_is_removed(tmp_path: Path) -> None:
    inputs = {"rows": 1}
    a_run(tmp_path, inputs, 4, 8, 12)
    (tmp_path / "checkpoint-12" / WHOLE_FILE).unlink()
    put(tmp_path, writing="checkpoint-12")
    found = inspect_folder_and_drop_partial_checkpoint(tmp_path, inputs)
    assert found.checkpoint == tmp_path / "checkpoint-8"
    assert [path.name for path in sorted(tmp_path.glob("*checkpoint*"))] == [
        "checkpoint-4",
        "checkpoint-8",
    ]
    assert [note.partition(" (")[0] for note in found.notes] == ["checkpoint-12 is not whole"]


def put(folder: Path, **facts: Any) -> None:
    run = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
    (folder / RUN_FILE).write_text(json.dumps(run | facts), encoding="utf-8")


def a_changed_file(folder: Path) -> Path:
    (folder / "checkpoint-8" / "optimizer.pt").write_bytes(b"other" * 100)
    return folder / "checkpoint-8"


def a_file_more_in_one_that_comes_again(folder: Path) -> Path:
    (folder / "checkpoint-8" / WHOLE_FILE).unlink()
    (folder / "checkpoint-8" / "notes.txt").write_text("mine")
    put(folder, writing="checkpoint-8")
    return folder / "checkpoint-8" / "notes.txt"


def a_checkpoint_of_others(folder: Path) -> Path:
    (folder / "checkpoint-8" / WHOLE_FILE).unlink()
    return folder / "checkpoint-8"


def weights_of_others(folder: Path) -> Path:
    (folder / "adapter_model.safetensors").write_bytes(b"mine")
    return folder / "adapter_model.safetensors"


def a_card_that_was_edited(folder: Path) -> Path:
    (folder / "README.md").write_text("mine")
    put(folder, status="finished", files={"README.md": [3, "0" * 32]})
    return folder / "README.md"


def a_link_in_its_place(folder: Path) -> Path:
    (folder / "checkpoint-12").symlink_to(folder / "checkpoint-4")
    return folder / "checkpoint-12"


def findings_of_others(folder: Path) -> Path:
    (folder / "findings.jsonl").write_text("mine\n")
    return folder / "findings.jsonl"


STRANGERS = (
    a_changed_file,
    a_file_more_in_one_that_comes_again,
    a_checkpoint_of_others,
    weights_of_others,
    a_card_that_was_edited,
    a_link_in_its_place,
    findings_of_others,
)


@pytest.mark.parametrize("change", STRANGERS, ids=lambda change: change.__name__)
def test_what_a_run_did_not_write_is_named_and_left(change: Any, tmp_path: Path) -> None:
    inputs = {"rows": 1}
    folder = a_run(tmp_path, inputs, 4, 8)
    stranger = change(folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(UsageError) as caught:
        inspect_folder_and_drop_partial_checkpoint(folder, inputs)
    assert str(stranger) in str(caught.value)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_older_checkpoints_go_and_what_stands_in_them_stays(tmp_path: Path) -> None:
    folder = a_run(tmp_path, {}, 4, 8)
    (folder / "checkpoint-4" / "notes.txt").write_text("mine")
    (folder / "checkpoint-8" / "optimizer.pt").write_bytes(b"other" * 100)
    assert remove_checkpoint_and_name_remains(folder / "checkpoint-4") == ["notes.txt"]
    assert remove_checkpoint_and_name_remains(folder / "checkpoint-8") == ["optimizer.pt"]
    left = sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )
    assert left == ["checkpoint-4/notes.txt", "checkpoint-8/optimizer.pt", RUN_FILE]


def test_every_change_of_a_checkpoint_is_seen(tmp_path: Path) -> None:
    checkpoint = a_run(tmp_path, {}, 4) / "checkpoint-4"
    assert find_checkpoint_fault(checkpoint) is None
    (checkpoint / "optimizer.pt").write_bytes(b"state" * 99)
    assert find_checkpoint_fault(checkpoint) == "optimizer.pt has 495 bytes, 500 were written"
    (checkpoint / "optimizer.pt").unlink()
    assert find_checkpoint_fault(checkpoint) == "optimizer.pt is not there"


def test_a_run_that_has_ended_is_not_trained_again(tmp_path: Path) -> None:
    a_run(tmp_path, {"rows": 1}, 4, status="finished")
    assert inspect_folder_and_drop_partial_checkpoint(tmp_path, {"rows": 1}).finished


def test_other_versions_are_said(tmp_path: Path) -> None:
    a_run(tmp_path, {"rows": 1}, 4)
    run = json.loads((tmp_path / RUN_FILE).read_text(encoding="utf-8"))
    (tmp_path / RUN_FILE).write_text(
        json.dumps(run | {"versions": {"torch": "0.1"}}), encoding="utf-8"
    )
    assert (
        inspect_folder_and_drop_partial_checkpoint(tmp_path, {"rows": 1})
        .notes[0]
        .startswith("since the run began: torch 0.1 -> ")
    )


def test_a_record_that_is_none(tmp_path: Path) -> None:
    (tmp_path / RUN_FILE).write_text('{"format": 1}', encoding="utf-8")
    with pytest.raises(UsageError, match=r"holds run\.json and no run\.json that truetune wrote"):
        inspect_folder_and_drop_partial_checkpoint(tmp_path, {"rows": 1})


def test_lost_weights_are_made_again(tmp_path: Path) -> None:
    a_run(tmp_path, {"rows": 1}, 4, status="finished")
    run = json.loads((tmp_path / RUN_FILE).read_text(encoding="utf-8"))
    (tmp_path / RUN_FILE).write_text(
        json.dumps(run | {"files": {"model.safetensors": [3, "00"]}}), encoding="utf-8"
    )
    found = inspect_folder_and_drop_partial_checkpoint(tmp_path, {"rows": 1})
    assert (found.finished, found.checkpoint) == (False, tmp_path / "checkpoint-4")


def test_one_process_a_folder(tmp_path: Path) -> None:
    with (
        filelock.FileLock(tmp_path / LOCK_NAME, is_singleton=False),
        pytest.raises(UsageError, match="another process trains there"),
        lock_folder(tmp_path),
    ):
        pass
