"""`learning-rate-far-from-published` on adapters below what is published for one: a note."""

from __future__ import annotations

from pathlib import Path

import pytest

import truetune

SCRIPT = """
from datasets import load_dataset
from peft import LoraConfig
from trl import {method}Config, {method}Trainer

rows = load_dataset("json", data_files="rows.jsonl", split="train")
args = {method}Config(output_dir="out", max_length=2048{more})
trainer = {method}Trainer("Qwen/Qwen2.5-1.5B-Instruct", args=args, train_dataset=rows{adapter})
trainer.train()
"""
LORA = ", peft_config=LoraConfig(r=16)"
FACTORY = """
model_name_or_path: Qwen/Qwen2.5-7B-Instruct
stage: dpo
do_train: true
finetuning_type: {kind}
dataset: pairs
template: qwen
cutoff_len: 2048
output_dir: out
{more}
"""


def _notes(path: Path) -> list[str]:
    report = truetune.check(path, select=("learning-rate-far-from-published",))
    return [finding.message for finding in report.findings if finding.severity == "info"]


@pytest.mark.parametrize(
    ("method", "more", "adapter", "begins"),
    [
        ("DPO", "", LORA, "no learning rate is set: the default of 1e-06"),
        ("ORPO", "", LORA, "no learning rate is set"),
        ("SFT", "", LORA, ""),  # 2e-5 is slow for an adapter, and common
        ("DPO", ", learning_rate=1e-6", LORA, "a learning rate of 1e-06 for DPO of an adapter"),
        ("DPO", ", learning_rate=2e-6", LORA, "a learning rate of 2e-06"),
        ("DPO", ", learning_rate=5e-6", LORA, ""),
        ("DPO", ", learning_rate=2e-5", LORA, ""),
        ("DPO", "", "", ""),  # the default is one for all weights
        ("KTO", "", LORA, ""),  # adapters are published from 5e-7 on
        ("SFT", ", learning_rate=2e-5", LORA, ""),  # someone chose it
        ("DPO", ', learning_rate=1e-6, optim="sgd"', LORA, ""),  # its rates are others
    ],
)
def test_adapters_in_scripts(
    method: str, more: str, adapter: str, begins: str, tmp_path: Path
) -> None:
    file = tmp_path / "train.py"
    file.write_text(SCRIPT.format(method=method, more=more, adapter=adapter))
    notes = _notes(file)
    assert len(notes) == bool(begins)
    assert all(note.startswith(begins) for note in notes)


@pytest.mark.parametrize(
    ("kind", "more", "count"),
    [
        ("lora", "learning_rate: 1.0e-6", 1),
        ("lora", "", 0),  # LLaMA-Factory's default is 5e-5
        ("full", "learning_rate: 1.0e-6", 0),
    ],
)
def test_adapters_in_settings(kind: str, more: str, count: int, tmp_path: Path) -> None:
    file = tmp_path / "dpo.yaml"
    file.write_text(FACTORY.format(kind=kind, more=more))
    assert len(_notes(file)) == count
