"""Folders of tokenized rows that LLaMA-Factory loads instead of the data set, by the number of their rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from datasets import Dataset, DatasetDict

import truetune

SETTINGS = {
    "model_name_or_path": "some/model", "stage": "sft", "do_train": True, "finetuning_type": "lora",
    "dataset": "rows", "dataset_dir": ".", "template": "qwen", "cutoff_len": 256,
    "tokenized_path": "saved",
}  # fmt: skip


def messages_of(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    tokenized: int,
    rows: int,
    described: dict[str, Any] | None = None,
    **settings: Any,
) -> list[str]:
    (folder / "rows.json").write_text(
        json.dumps([{"instruction": f"Who {n}?", "output": f"It is {n}."} for n in range(rows)]),
        encoding="utf-8",
    )
    (folder / "dataset_info.json").write_text(
        json.dumps({"rows": {"file_name": "rows.json", **(described or {})}}), encoding="utf-8"
    )
    (folder / "sft.yaml").write_text(yaml.safe_dump(SETTINGS | settings), encoding="utf-8")
    if tokenized:
        saved = Dataset.from_dict({"input_ids": [[1, 2]] * tokenized})
        DatasetDict({"train": saved}).save_to_disk(str(folder / "saved"))
    # LLaMA-Factory finds dataset_dir from the folder that it is started in.
    monkeypatch.chdir(folder)
    found = truetune.check(folder / "sft.yaml").findings
    return [one.message for one in found if one.rule == "prepared-rows-older-than-data"]


@pytest.mark.parametrize(
    ("tokenized", "rows", "settings"),
    [
        (140, 300, {}),
        (300, 140, {}),
        (200, 300, {"val_size": 0.1}),
        (100, 300, {"max_samples": 200}),
        (80, 100, {"cutoff_len": 2048}),
    ],
)
def test_the_rows_of_other_data(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    tokenized: int,
    rows: int,
    settings: dict[str, Any],
) -> None:
    (message,) = messages_of(monkeypatch, tmp_path, tokenized, rows, **settings)
    assert f"already holds {tokenized} tokenized rows" in message


@pytest.mark.parametrize(
    ("tokenized", "rows", "settings"),
    [
        (300, 300, {}),
        (298, 300, {}),
        (270, 300, {"val_size": 0.1}),
        (200, 300, {"max_samples": 200}),
        (40, 300, {"packing": True}),
        (40, 300, {"mix_strategy": "interleave_under"}),
        (0, 300, {}),
    ],
)
def test_the_rows_of_the_data_set(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    tokenized: int,
    rows: int,
    settings: dict[str, Any],
) -> None:
    assert messages_of(monkeypatch, tmp_path, tokenized, rows, **settings) == []


def test_a_data_set_of_which_a_part_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert messages_of(monkeypatch, tmp_path, 40, 300, described={"num_samples": 40}) == []
