"""Scripts that ask a model on a split of their own, beside a training that splits the same rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

LOAD = """
import numpy as np
import torch
import transformers
from datasets import load_dataset
from sklearn.model_selection import train_test_split
from torch.utils.data import random_split
rows = load_dataset("json", data_files="data/letters.jsonl", split="train")
"""
FIT = """
from trl import SFTTrainer
SFTTrainer(model="some/base", train_dataset=train).train()
"""
ASK = """
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("out")
for row in held:
    print(model.generate(**row))
"""
DATASETS = "parts = rows.train_test_split({})\ntrain, held = parts['train'], parts['test']\n"
SKLEARN = "train, held = train_test_split(list(rows), {})\n"
TORCH = "train, held = random_split(rows, [900, 100]{})\n"
SEEDED = ", generator=torch.Generator().manual_seed(0)"
OTHER = (
    (DATASETS.format("test_size=0.1"), DATASETS.format("test_size=0.1")),
    (DATASETS.format("0.1, seed=0"), DATASETS.format("0.1")),
    (DATASETS.format("0.1"), DATASETS.format("0.1, seed=0")),
    (SKLEARN.format("test_size=0.1"), SKLEARN.format("test_size=0.1")),
    (TORCH.format(SEEDED), TORCH.format("")),
    (TORCH.format(""), "np.random.seed(0)\n" + TORCH.format("")),
)
SAME = (
    (DATASETS.format("0.1, seed=0"), DATASETS.format("0.1, seed=0")),
    (SKLEARN.format("test_size=9, random_state=0"), SKLEARN.format("test_size=9, random_state=0")),
    (TORCH.format(SEEDED), TORCH.format(SEEDED)),
    ("transformers.set_seed(0)\n" + DATASETS.format("0.1"),) * 2,
    ("torch.manual_seed(0)\n" + TORCH.format(""),) * 2,
    (DATASETS.format("0.1") + "held.to_json('held.jsonl')\n", DATASETS.format("0.1")),
)


def rules_of(tmp_path: Path, train: str, ask: str) -> list[str]:
    (tmp_path / "train.py").write_text(LOAD + train + FIT, encoding="utf-8")
    (tmp_path / "ask.py").write_text(ask, encoding="utf-8")
    found = lint([str(tmp_path / "ask.py")], select=("SRC054",)).findings
    return [one.rule for one in found]


@pytest.mark.parametrize(("train", "ask"), OTHER)
def test_the_rows_of_another_split(tmp_path: Path, train: str, ask: str) -> None:
    assert rules_of(tmp_path, train, LOAD + ask + ASK) == ["evaluated-on-training-rows"]


@pytest.mark.parametrize(("train", "ask"), SAME)
def test_the_rows_that_were_held_out(tmp_path: Path, train: str, ask: str) -> None:
    assert rules_of(tmp_path, train, LOAD + ask + ASK) == []


def test_the_rows_of_another_file(tmp_path: Path) -> None:
    split = DATASETS.format("0.1")
    other = LOAD.replace("letters", "notes")
    assert rules_of(tmp_path, split, other + split + ASK) == []


def test_a_script_that_asks_no_model(tmp_path: Path) -> None:
    split = DATASETS.format("0.1")
    assert rules_of(tmp_path, split, LOAD + split + "print(len(held))\n") == []
