"""Configurations that train the demo data of their framework beside rows that nothing names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import truetune

INFO = {
    "identity": {"file_name": "identity.json"},
    "alpaca_en_demo": {"file_name": "alpaca_en_demo.json"},
    "support": {"file_name": "support.json"},
}
ROWS = [{"instruction": f"Question {n}?", "input": "", "output": f"Answer {n}."} for n in range(20)]
FACTORY = {
    "model_name_or_path": "some/model", "stage": "sft", "do_train": True, "finetuning_type": "lora",
    "dataset": "identity,alpaca_en_demo", "cutoff_len": 2048,
}  # fmt: skip
AXOLOTL = {
    "base_model": "some/model", "sequence_len": 2048, "micro_batch_size": 1,
    "datasets": [{"path": "mhenrichsen/alpaca_2k_test", "type": "alpaca"}],
}  # fmt: skip


def check(folder: Path, settings: dict[str, object], files: dict[str, object]) -> truetune.Report:
    (folder / "train.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    for name, value in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        text = value if isinstance(value, str) else json.dumps(value)
        (folder / name).write_text(text, encoding="utf-8")
    return truetune.check([str(folder)])


@pytest.mark.parametrize(
    ("settings", "files", "named"),
    [
        (FACTORY, {"data/dataset_info.json": INFO, "data/support.json": ROWS}, "dataset: support"),
        (FACTORY, {"data/dataset_info.json": {}, "data/chats.json": ROWS}, "describe chats.json"),
        (FACTORY, {"rows.json": ROWS}, "describe rows.json"),
        (FACTORY | {"dataset": "identity"}, {"data/support.json": ROWS, "data/identity.json": ROWS}, "support.json"),
        (AXOLOTL, {"support.json": ROWS}, "path: support.json"),
        (AXOLOTL, {"data/support.json": ROWS}, "path: support.json"),
    ],
)  # fmt: skip
def test_rows_that_nothing_names(
    settings: dict[str, object], files: dict[str, object], named: str, tmp_path: Path
) -> None:
    report = check(tmp_path, settings, files)
    (found,) = [one for one in report.findings if one.rule == "demo-data-trained-own-rows-unused"]
    assert found.severity == "warning"
    assert named in found.remedy


@pytest.mark.parametrize(
    ("settings", "files"),
    [
        (FACTORY | {"dataset": "support"}, {"data/dataset_info.json": INFO, "data/support.json": ROWS}),
        (FACTORY | {"dataset": "identity,support"}, {"data/dataset_info.json": INFO, "data/support.json": ROWS}),
        (FACTORY, {"data/dataset_info.json": INFO, "data/alpaca_en_demo.json": ROWS}),
        (FACTORY, {"data/test.json": ROWS}),
        (FACTORY, {"data/support.json": ROWS, "second.yaml": yaml.safe_dump(FACTORY | {"dataset": "support"})}),
        (FACTORY, {"data/support.json": ROWS, "run.sh": "llamafactory-cli train train.yaml dataset=support\n"}),
        (FACTORY | {"do_train": False}, {"data/support.json": ROWS}),
        (AXOLOTL | {"datasets": [{"path": "support.json", "type": "alpaca"}]}, {"support.json": ROWS}),
        (AXOLOTL | {"datasets": [{"path": "our/rows", "type": "alpaca"}]}, {"support.json": ROWS}),
        (AXOLOTL, {"support_eval.json": ROWS}),
        (AXOLOTL, {"settings.json": {"a": 1}}),
    ],
)  # fmt: skip
def test_rows_that_are_named_or_not_meant_to_be_trained(
    settings: dict[str, object], files: dict[str, object], tmp_path: Path
) -> None:
    report = check(tmp_path, settings, files)
    assert [one for one in report.findings if one.rule == "demo-data-trained-own-rows-unused"] == []


def test_rows_of_no_run_are_not_judged_as_the_runs(tmp_path: Path) -> None:
    twice = [ROWS[0]] * 20
    report = check(tmp_path, FACTORY, {"data/support.json": twice})
    assert [one.rule for one in report.findings] == ["demo-data-trained-own-rows-unused"]
    assert "the rows" in [one.what for one in report.not_judged]
