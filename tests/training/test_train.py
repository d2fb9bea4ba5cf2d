"""`truetune train` from its settings to its folder, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import truetune
from tests.auditing import tiny
from truetune.errors import DataError, FindingsError, UsageError
from truetune.settings.read_truetune_settings import validate_settings
from truetune.training import preflight_checks
from truetune.training.load_encoded_held_out_and_packed_rows import (
    choose_held_out_by_hash,
    held_out_rows_with_their_copies,
    load_training_data,
)
from truetune.training.prepare_model import prepare_model
from truetune.training.trainer_with_supervised_token_loss import make_supervised_trainer
from truetune.training.training_recipe import make_recipe

FEW: dict[str, Any] = {
    "max_length": 256,
    "rehearsal": False,
    "watch": {"prompts": 2, "max_new_tokens": 8},
    "trainer": {"report_to": "none"},
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    tiny.model(eos_token_id=3).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


def rows(folder: Path, chats: list[dict[str, Any]]) -> Path:
    path = folder / "chats.jsonl"
    path.write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    return path


def settings(base: Path, data: Path, **training: Any) -> dict[str, Any]:
    return {
        **FEW,
        "model": str(base),
        "tokenizer": str(base),
        "data": str(data),
        "training": {"max_steps": 4, "lora": {"r": 4}, **training},
    }


def test_a_run_ends_in_a_folder_that_a_check_finds_clean(base: Path, tmp_path: Path) -> None:
    given = settings(base, rows(tmp_path, tiny.chats(100)))
    done = truetune.train(out=tmp_path / "out", **given)
    assert (done.steps, done.failed) == (4, False)
    assert {
        "run.json",
        "contract.json",
        "samples",
        "adapter_model.safetensors",
        "base_fingerprint.json",
    } <= {path.name for path in done.folder.iterdir()}
    # Four steps teach nothing, and the check says so.
    few_steps = ["run-ended-after-few-steps"]
    assert truetune.check([str(done.folder)], ignore=few_steps).worst() in (None, "info")
    logged = json.loads((done.folder / "trainer_state.json").read_text())["log_history"]
    assert all("loss/stop token" in line for line in logged if "loss" in line)
    again = truetune.train(out=tmp_path / "out", **given)
    assert (again.steps, again.seconds) == (4, 0.0)
    with pytest.raises(UsageError, match="learning_rate"):
        truetune.train(
            out=tmp_path / "out", **settings(base, tmp_path / "chats.jsonl", learning_rate=1e-2)
        )


def test_an_error_of_the_check_stops_it_and_frees_the_folder(base: Path, tmp_path: Path) -> None:
    bad = rows(tmp_path, [{"messages": [{"role": "user", "content": "Hi"}]} for _ in range(12)])
    with pytest.raises((FindingsError, DataError)):
        truetune.train(out=tmp_path / "out", **settings(base, bad))
    good = rows(tmp_path, tiny.chats(12))
    assert truetune.train(out=tmp_path / "out", **settings(base, good, max_steps=1)).steps == 1


def test_rows_that_are_all_too_long(base: Path, tmp_path: Path) -> None:
    given = {**settings(base, rows(tmp_path, tiny.chats(12))), "max_length": 4}
    with pytest.raises(FindingsError, match="rows-surely-cut"):
        truetune.train(out=tmp_path / "out", **given)
    with pytest.raises(DataError, match="none of 12 rows could be encoded"):
        truetune.train(out=tmp_path / "out", force=True, **given)


def test_the_audit_sees_labels_that_are_shifted(base: Path, tmp_path: Path) -> None:
    given = settings(base, rows(tmp_path, tiny.chats(40)), val_size=0)
    made = make_recipe(validate_settings(given, "test"), rows=40, gpu=False, bf16=False)
    data = load_training_data(made.spec)
    trainer = make_supervised_trainer(made, prepare_model(made.spec, made.training), data)
    assert not preflight_checks.audit_first_batches_and_laws(
        trainer, made.spec, data.train, laws="none"
    ).failed()
    collate = trainer.data_collator

    def shifted(batch: Any) -> Any:
        made = collate(batch)
        return {**made, "labels": torch.roll(made["labels"], 1, dims=1)}

    trainer.data_collator = shifted
    report = preflight_checks.audit_first_batches_and_laws(
        trainer, made.spec, data.train, laws="none"
    )
    assert report.failed()
    assert "BAT023" in {finding.code for finding in report.findings}


def test_copies_of_a_held_out_row_are_held_out_too() -> None:
    numbers = np.arange(6)
    assert held_out_rows_with_their_copies(
        [b"a", b"b", b"a", b"c", b"b", b"d"], numbers, frozenset({0})
    ) == {0, 2}
    assert held_out_rows_with_their_copies([b"a"] * 6, numbers, frozenset({0})) == frozenset()


def test_as_many_rows_are_held_out_as_asked() -> None:
    numbers = np.repeat(np.arange(100), 2)
    assert len(choose_held_out_by_hash(numbers, 0.25)) == 25
    assert len(choose_held_out_by_hash(numbers, None)) == 8
    assert choose_held_out_by_hash(np.arange(20), None) == frozenset()
    for wrong in (-1, 100, 1e9):
        with pytest.raises(UsageError, match="val_size"):
            choose_held_out_by_hash(numbers, wrong)
