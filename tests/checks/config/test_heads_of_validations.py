"""Which settings evaluate on the first rows of a sorted file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rules
from truetune.settings.stacks.read_config_of_any_stack import read_config

SORTED = [
    {"instruction": f"{n}?", "output": "x", "task": "sort" if n < 60 else "tell"}
    for n in range(120)
]
MIXED = [{**row, "task": ("sort", "tell")[n % 2]} for n, row in enumerate(SORTED)]
LONGER = [
    {"instruction": f"{n}?", "output": "yes" if n < 60 else "it took so many days"}
    for n in range(120)
]
LLAMA_FACTORY = {
    "model_name_or_path": "some/model", "stage": "sft", "do_train": True, "finetuning_type": "lora", "dataset": "train",
    "eval_dataset": "val", "dataset_dir": "data", "template": "qwen", "max_samples": 50,
}  # fmt: skip
AXOLOTL = {
    "base_model": "some/model", "datasets": [{"path": "data/train.json", "type": "alpaca"}], "adapter": "lora",
    "test_datasets": [{"path": "data/val.json", "type": "alpaca", "split": "train[:50]"}], "num_epochs": 1,
}  # fmt: skip
WHOLE = [{"path": "data/val.json", "type": "alpaca", "split": "train"}]
PERCENT = [{"path": "data/val.json", "type": "alpaca", "split": "train[:25%]"}]
CASES = {
    "LLaMA-Factory": (LLAMA_FACTORY, SORTED, True),
    "LLaMA-Factory, lengths": (LLAMA_FACTORY, LONGER, True),
    "LLaMA-Factory, mixed": (LLAMA_FACTORY, MIXED, False),
    "LLaMA-Factory, all rows": ({**LLAMA_FACTORY, "max_samples": 500}, SORTED, False),
    "LLaMA-Factory, no limit": ({k: v for k, v in LLAMA_FACTORY.items() if k != "max_samples"}, SORTED, False),
    "Axolotl": (AXOLOTL, SORTED, True),
    "Axolotl, percent": ({**AXOLOTL, "test_datasets": PERCENT}, SORTED, True),
    "Axolotl, mixed": (AXOLOTL, MIXED, False),
    "Axolotl, whole": ({**AXOLOTL, "test_datasets": WHOLE}, SORTED, False),
}  # fmt: skip


@pytest.mark.parametrize(("settings", "rows", "is_found"), CASES.values(), ids=CASES)
def test_the_first_rows_of_a_sorted_validation(
    tmp_path: Path, settings: dict[str, object], rows: list[dict[str, str]], is_found: bool
) -> None:
    files = {"train.json": MIXED, "val.json": rows}
    files_of = {name: {"file_name": f"{name}.json"} for name in ("train", "val")}
    (tmp_path / "data").mkdir()
    for name, content in (*files.items(), ("dataset_info.json", files_of)):
        (tmp_path / "data" / name).write_text(json.dumps(content), encoding="utf-8")
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    found = run_rules(
        read_config(path), [find_rule("settings-evaluate-head-of-sorted-file")]
    ).findings
    assert bool(found) is is_found
