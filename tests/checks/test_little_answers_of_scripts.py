"""Answers that are next to nothing of what a script trains, told by its columns, with no tokenizer at hand."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.settings.run_spec import RunSpec

TEAMS = ("billing", "shipping", "returns", "accounts")
WORDS = (
    "order",
    "parcel",
    "late",
    "refund",
    "please",
    "password",
    "shoes",
    "cable",
    "invoice",
    "number",
    "box",
)
RULE = "answer-is-little-of-the-loss"

TRAINER = """
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling
from transformers import Trainer, TrainingArguments
import pandas as pd
from datasets import Dataset
tok = AutoTokenizer.from_pretrained("some/model")
rows = Dataset.from_pandas(pd.read_csv("mails.csv"))
def encode(row):
    return tok(f"Mail: {row['body']}\\nTeam: {row['team']}{tok.eos_token}", truncation=True, max_length=1024)
rows = rows.map(encode, remove_columns=rows.column_names)
model = AutoModelForCausalLM.from_pretrained("some/model")
collator = DataCollatorForLanguageModeling(tok, mlm=False)
Trainer(model, TrainingArguments("out"), train_dataset=rows, data_collator=collator).train()
"""
OWN_LOOP = """
import json
import torch
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
tok = AutoTokenizer.from_pretrained("some/model")
class Mails(Dataset):
    def __init__(self, path):
        self.rows = [json.loads(line) for line in open(path)]
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, n):
        row = self.rows[n]
        ids = tok(row["body"] + "\\n### Answer: " + row["answer"], return_tensors="pt")["input_ids"][0]
        return {"input_ids": ids, "labels": ids.clone()}
model = AutoModelForCausalLM.from_pretrained("some/model")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for batch in DataLoader(Mails("mails.jsonl"), batch_size=1, shuffle=True):
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
FORMATTED = """
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
rows = load_dataset("json", data_files="mails.jsonl", split="train")
def form(row):
    return f"<mail>{row['body']}</mail><team>{row['team']}</team>"
SFTTrainer("some/model", args=SFTConfig("out"), train_dataset=rows, formatting_func=form).train()
"""
OF_A_PAIR = FORMATTED.replace(
    "def form(row):\n    return f\"<mail>{row['body']}</mail><team>{row['team']}</team>\"",
    'rows = rows.map(lambda row: {"prompt": row["body"], "completion": row["team"]})',
).replace(", formatting_func=form", "")
MASKED = OWN_LOOP.replace(
    '        return {"input_ids": ids, "labels": ids.clone()}',
    '        labels = ids.clone()\n        labels[: len(tok(row["body"])["input_ids"])] = -100\n'
    '        return {"input_ids": ids, "labels": labels}',
)
WITH_SOURCE = FORMATTED.replace("row['team']", "row['source']")
LONG_ANSWER = FORMATTED.replace("row['team']", "row['reply']")
ANSWER_FIRST = FORMATTED.replace(
    "<mail>{row['body']}</mail><team>{row['team']}</team>",
    "<team>{row['team']}</team><mail>{row['body']}</mail>",
)
IN_TRL = (
    FORMATTED.replace("def form", "def text_of")
    .replace(", formatting_func=form", "")
    .replace("SFTTrainer(", 'rows = rows.map(lambda row: {"text": text_of(row)})\nSFTTrainer(', 1)
)


def write_rows(folder: Path) -> None:
    """The same mails as CSV and as lines of JSON."""
    rng = random.Random(3)
    rows = []
    for _ in range(60):
        team = rng.choice(TEAMS)
        rows.append(
            {
                "body": " ".join(rng.choices(WORDS, k=60)),
                "team": team,
                "answer": f"{team} number {rng.randint(1, 9_999)}",
                "source": rng.choice(("web", "mail")),
                "reply": " ".join(rng.choices(WORDS, k=30)),
            }
        )
    with (folder / "mails.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "mails.jsonl").write_text(lines, encoding="utf-8")


def rules_found(folder: Path, script: str, rows: str) -> list[str]:
    """What a check of the script with its rows finds of this rule."""
    write_rows(folder)
    (folder / "train.py").write_text(script, encoding="utf-8")
    for name in ("mails.csv", "mails.jsonl"):
        if name != rows:
            (folder / name).unlink()
    report = check_paths([str(folder)], RunSpec())
    return [finding.message for finding in report.findings if finding.rule == RULE]


@pytest.mark.parametrize(
    ("script", "rows", "column"),
    [
        (TRAINER, "mails.csv", "team"),
        (OWN_LOOP, "mails.jsonl", "answer"),
        (FORMATTED, "mails.jsonl", "team"),
        (IN_TRL, "mails.jsonl", "team"),
        (
            IN_TRL.replace("mails.jsonl", "mails.csv").replace('"json"', '"csv"'),
            "mails.csv",
            "team",
        ),
    ],
)
def test_told(
    script: str, rows: str, column: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (message,) = rules_found(tmp_path, script, rows)
    assert message.startswith(f"the answer, {column}, is ")


@pytest.mark.parametrize(
    ("script", "rows"),
    [
        (OF_A_PAIR, "mails.jsonl"),
        (MASKED, "mails.jsonl"),
        (WITH_SOURCE, "mails.jsonl"),
        (LONG_ANSWER, "mails.jsonl"),
        (ANSWER_FIRST, "mails.jsonl"),
    ],
)
def test_silent(script: str, rows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert rules_found(tmp_path, script, rows) == []


@pytest.mark.parametrize(("words", "is_said"), [(900, False), (20, True)])
def test_answers_after_the_cut(
    words: int, is_said: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the limit cuts off is no share of what is learned."""
    monkeypatch.chdir(tmp_path)
    rows = [
        {"body": " ".join(["password"] * words), "team": TEAMS[n % 4], "n": n} for n in range(40)
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "mails.jsonl").write_text(lines, encoding="utf-8")
    (tmp_path / "train.py").write_text(IN_TRL, encoding="utf-8")
    report = check_paths([str(tmp_path)], RunSpec())
    found = [finding.message for finding in report.findings if finding.rule == RULE]
    assert bool(found) == is_said
