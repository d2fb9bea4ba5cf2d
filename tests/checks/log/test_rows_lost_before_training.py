"""Folders whose log counts fewer rows than the files of its settings hold, and folders where the counts agree."""

# ruff: noqa: E501 - a case is one line
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import truetune

RULE = "rows-lost-before-training"
TRL = {
    "model_name_or_path": "some/model",
    "dataset_name": "rows.jsonl",
    "max_length": 256,
    "packing": False,
}
AXOLOTL = {
    "base_model": "some/model", "datasets": [{"path": "rows.jsonl", "type": "chat_template"}],
    "sequence_len": 256, "micro_batch_size": 2, "learning_rate": 0.0002,
}  # fmt: skip
FACTORY = {
    "model_name_or_path": "some/model", "stage": "sft", "do_train": True, "finetuning_type": "lora",
    "dataset": "rows", "dataset_dir": ".", "template": "qwen", "cutoff_len": 256,
}  # fmt: skip
COMMAND = "trl sft --model_name_or_path some/model --dataset_name rows.jsonl --max_length 256 --output_dir out\n"


def row(number: int, answer: str | None = None) -> dict[str, Any]:
    said = f"Answer {number}." if answer is None else answer
    return {
        "messages": [
            {"role": "user", "content": f"Question {number}?"},
            {"role": "assistant", "content": said},
        ]
    }


SHORT = [row(n) for n in range(200)]
LONG = SHORT[:140] + [row(n, "word " * 800) for n in range(60)]
EMPTY = SHORT[:150] + [row(n, "") for n in range(50)]
COPIES = SHORT[:100] + SHORT[:100]


def found(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    files: dict[str, Any],
    rows: list[dict[str, Any]],
    count: int,
) -> list[str]:
    lines = "".join(json.dumps(one) + "\n" for one in rows)
    (folder / "rows.jsonl").write_text(lines, encoding="utf-8")
    for name, value in files.items():
        text = value if isinstance(value, str) else yaml.safe_dump(value, sort_keys=False)
        (folder / name).write_text(text, encoding="utf-8")
    text = f"***** Running training *****\n  Num examples = {count:,}\n  Num Epochs = 1\n  Total optimization steps = 50\n"
    (folder / "train.log").write_text(text + "{'loss': 1.2, 'epoch': 0.5}\n", encoding="utf-8")
    # LLaMA-Factory finds dataset_dir from the folder that it is started in.
    monkeypatch.chdir(folder)
    report = truetune.check([str(folder)], select=[RULE], allow_unjudged=True)
    return [" | ".join((one.message, *one.evidence)) for one in report.findings]


@pytest.mark.parametrize(
    ("files", "rows", "count", "part"),
    [
        ({"sft.yaml": TRL}, SHORT, 100, "100 of 200 rows are lost before the training"),
        ({"sft.yaml": TRL}, SHORT, 100, "another format, a filter or an old cache"),
        ({"run.yml": AXOLOTL}, LONG, 140, "60 rows are longer than about 256 tokens (4 characters each), as many as are missing"),
        ({"sft.yaml": TRL}, EMPTY, 150, "50 rows have an empty answer, as many as are missing"),
        ({"run.sh": COMMAND}, COPIES, 100, "100 rows are duplicates of earlier rows, as many as are missing"),
        ({"sft.yaml": FACTORY, "dataset_info.json": json.dumps({"rows": {"file_name": "rows.jsonl", "formatting": "sharegpt"}})}, SHORT, 90, "110 of 200 rows"),
    ],
)  # fmt: skip
def test_rows_that_are_missing(
    files: dict[str, Any],
    rows: list[dict[str, Any]],
    count: int,
    part: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (text,) = found(monkeypatch, tmp_path, files, rows, count)
    assert part in text


@pytest.mark.parametrize(
    ("files", "rows", "count"),
    [
        ({"sft.yaml": TRL}, SHORT, 200),
        ({"sft.yaml": TRL}, SHORT, 190),
        ({"run.yml": AXOLOTL | {"val_set_size": 0.2}}, SHORT, 160),
        ({"run.yml": AXOLOTL | {"sample_packing": True}}, SHORT, 20),
        ({"sft.yaml": TRL | {"packing": True}}, SHORT, 20),
        ({"sft.yaml": TRL | {"dataset_name": "some/rows"}}, SHORT, 20),
        ({"sft.yaml": FACTORY | {"max_samples": 50}, "dataset_info.json": json.dumps({"rows": {"file_name": "rows.jsonl"}})}, SHORT, 50),
        ({"sft.yaml": TRL, "small.yaml": TRL | {"dataset_name": "few.jsonl"}, "few.jsonl": json.dumps(row(1)) + "\n"}, SHORT, 20),
        ({"train.py": "from trl import SFTTrainer\n"}, SHORT, 20),
    ],
)  # fmt: skip
def test_rows_that_are_all_there_or_left_out_knowingly(
    files: dict[str, Any],
    rows: list[dict[str, Any]],
    count: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert found(monkeypatch, tmp_path, files, rows, count) == []


RECORDS = "".join(
    f"{{'loss': {1.6 - n / 30}, 'learning_rate': 0.0001, 'epoch': {n / 10}}}\n" for n in range(12)
)
READ = "Tokenizing Prompts (num_proc=32): 100%|##########| 9000/9000 [00:31<00:00, 301.22 examples/s]\n"
TOO_LONG = (
    READ + "[WARNING] [axolotl.utils.data.utils:214] Dropped 8127 long samples from dataset\n",
    READ + "[INFO] Dropped 4,000 sequences longer than 2048 tokens from the dataset\n",
    "Filtered out 3,000 of 9,000 prompts that exceed 512 tokens\n",
    "Removed 500 out of 900 too long examples\n",
    "Generating train split: 9000 examples [00:02, 3911.07 examples/s]\nSkipping 5000 conversations longer than 4096\n",
)
MOSTLY_KEPT = (
    READ + "[WARNING] [axolotl.utils.data.utils:214] Dropped 61 long samples from dataset\n",
    READ + "Removed 8000 duplicate rows\n",
    "Dropped 8127 long samples from dataset\n",
    "Filtered out 100 of 9,000 prompts that exceed 512 tokens\n",
    READ + "Dropped 8000 columns that no rule reads\n",
)


@pytest.mark.parametrize("printed", TOO_LONG)
def test_rows_that_the_output_says_are_too_long(tmp_path: Path, printed: str) -> None:
    (tmp_path / "run.log").write_text(printed + RECORDS, encoding="utf-8")
    found = truetune.diagnose(tmp_path / "run.log").findings
    assert "longer than the length limit" in next(one for one in found if one.rule == RULE).message


@pytest.mark.parametrize("printed", MOSTLY_KEPT)
def test_rows_that_are_mostly_kept(tmp_path: Path, printed: str) -> None:
    (tmp_path / "run.log").write_text(printed + RECORDS, encoding="utf-8")
    assert RULE not in {one.rule for one in truetune.diagnose(tmp_path / "run.log").findings}
