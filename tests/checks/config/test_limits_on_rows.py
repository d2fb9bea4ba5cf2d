"""Limits on the rows of a training: samples, slices and shards of each stack."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.checks.config.settings import AXOLOTL, LLAMA_FACTORY
from truetune.checks.config.rows_left_out_by_limit import RowsLeftOutByLimit
from truetune.checks.config.rows_surely_cut import RowsSurelyCut
from truetune.settings.stacks.read_config_of_any_stack import read_config

ROWS = [{"instruction": f"Add one to {n}.", "input": "", "output": str(n + 1)} for n in range(40)]
SWIFT: dict[str, Any] = {
    "model": "some/model",
    "tuner_type": "lora",
    "split_dataset_ratio": 0.1,
    "dataset": ["rows.jsonl"],
    "num_train_epochs": 3,
    "learning_rate": 1e-4,
    "max_length": 2048,
}
TORCHTUNE: dict[str, Any] = {
    "model": {"_component_": "torchtune.models.qwen2_5.lora_qwen2_5_7b_base"},
    "tokenizer": {"_component_": "torchtune.models.qwen2_5.qwen2_5_tokenizer"},
    "dataset": {
        "_component_": "torchtune.datasets.instruct_dataset",
        "source": "json",
        "data_files": "rows.jsonl",
    },
    "epochs": 1,
    "batch_size": 2,
}


def of_dataset(base: dict[str, Any], **more: object) -> dict[str, Any]:
    """Settings of Axolotl or torchtune with more keys in the table of their data set."""
    if "datasets" in base:
        table = {"path": "rows.jsonl", "ds_type": "json", "type": "alpaca", **more}
        return {**base, "datasets": [table]}
    return {**base, "dataset": {**base["dataset"], **more}}


def messages(folder: Path, settings: dict[str, Any]) -> list[str]:
    """What the rule says of settings beside forty rows."""
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    (folder / "rows.jsonl").write_text(lines, encoding="utf-8")
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    rule = RowsLeftOutByLimit(read_config(path))
    return [] if rule.unmet() else [found.message for found in rule.findings()]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (of_dataset(AXOLOTL, shards=10), ["shards: 10 leaves 36 of 40 rows out of the training"]),
        (
            of_dataset(AXOLOTL, split="train[:5%]"),
            ["split: train[:5%] leaves 38 of 40 rows out of the training"],
        ),
        (
            of_dataset(AXOLOTL, split="train[:30]"),
            ["split: train[:30] leaves 10 of 40 rows out of the training"],
        ),
        (
            of_dataset(TORCHTUNE, split="train[:10%]"),
            ["split: train[:10%] leaves 36 of 40 rows out of the training"],
        ),
        (of_dataset(AXOLOTL, split="train[:95%]"), []),
        (of_dataset(AXOLOTL), []),
        (
            {**SWIFT, "dataset": ["rows.jsonl#5"]},
            ["rows.jsonl#5 leaves 35 of 40 rows out of the training"],
        ),
        ({**SWIFT, "dataset": "rows.jsonl#500"}, []),
        ({**SWIFT, "dataset": ["rows.jsonl#5", "other/rows#5"]}, []),
        (SWIFT, []),
    ],
)
def test_parts_of_a_data_set(tmp_path: Path, settings: dict[str, Any], expected: list[str]) -> None:
    assert messages(tmp_path, settings) == expected


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"num_samples": 8}, ["num_samples 8 of own leaves 32 of 40 rows out of the training"]),
        ({"num_samples": 80}, []),
        ({}, []),
    ],
)
def test_samples_of_dataset_info(
    tmp_path: Path, entry: dict[str, Any], expected: list[str]
) -> None:
    info = {"own": {"file_name": "rows.jsonl", **entry}}
    (tmp_path / "dataset_info.json").write_text(json.dumps(info), encoding="utf-8")
    settings = {**LLAMA_FACTORY, "dataset": "own", "dataset_dir": str(tmp_path)}
    assert messages(tmp_path, settings) == expected


def test_a_yaml_of_swift_names_its_rows(tmp_path: Path) -> None:
    messages(tmp_path, {**SWIFT, "dataset": ["rows.jsonl#5"]})
    config = read_config(tmp_path / "run.yaml")
    assert config.stack == "ms-swift"
    assert [Path(name).name for name in config.spec.data] == ["rows.jsonl"]
    assert config.spec.training.lora is not None
    assert config.limit == 2048


@pytest.mark.parametrize(("strategy", "fate"), [(None, "dropped"), ("right", "cut")])
def test_swift_drops_long_rows_unless_told_how_to_cut(
    tmp_path: Path, strategy: str | None, fate: str
) -> None:
    row = {
        "messages": [
            {"role": "user", "content": "Why?"},
            {"role": "assistant", "content": "Rain falls. " * 400},
        ]
    }
    (tmp_path / "rows.jsonl").write_text((json.dumps(row) + "\n") * 10, encoding="utf-8")
    settings = {
        **SWIFT,
        "max_length": 128,
        **({"truncation_strategy": strategy} if strategy else {}),
    }
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    (found,) = RowsSurelyCut(read_config(path)).findings()
    assert f" certainly {fate}" in found.message or fate == "cut"
