"""Answers that are next to nothing of what a script trains, told by its columns, with no tokenizer at hand."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

import pytest

from truetune.checks.check_data import load_tokenizer_and_template
from truetune.checks.check_paths import check_paths
from truetune.checks.findings import Case
from truetune.checks.rows.answer_is_little_of_the_loss import AnswerAtEnd, AnswerIsLittleOfTheLoss
from truetune.render.byte_tokenizer import BYTE_TOKENIZER
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


CHAT = """
from datasets import load_dataset
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer
{imports}
tokenizer = AutoTokenizer.from_pretrained("some/model")
def to_text(row):
    chat = [{{"role": "user", "content": row["body"]}}, {{"role": "assistant", "content": row["team"]}}]
    return {{"text": tokenizer.apply_chat_template(chat, tokenize=False)}}
rows = load_dataset("json", data_files="mails.jsonl", split="train").map(to_text)
trainer = SFTTrainer("some/model", args={arguments}, train_dataset=rows{more})
trainer.train()
"""
"""A chat whose answer is one word behind a long question, rendered into one text"""
SETTINGS_IN_FILES = {
    "a dataclass": (
        "from settings import Settings\ncfg = Settings()",
        "from dataclasses import dataclass\n@dataclass\nclass Settings:\n    limit: int = 9_000\n",
    ),
    "a dataclass with another value": (
        "from settings import Settings\ncfg = Settings(limit=9_000)",
        "from dataclasses import dataclass\n@dataclass\nclass Settings:\n    limit: int = 512\n",
    ),
    "a namespace": (
        "from settings import cfg",
        "from types import SimpleNamespace\ncfg = SimpleNamespace(limit=9_000)\n",
    ),
    "an instance": (
        "import settings\ncfg = settings.cfg",
        "class C:\n    def __init__(self, limit):\n        self.limit = limit\ncfg = C(9_000)\n",
    ),
    "a model of pydantic": (
        "from settings import Settings\ncfg = Settings(limit=9_000)",
        "from pydantic import BaseModel\nclass Settings(BaseModel):\n    limit: int = 512\n",
    ),
    "options": (
        "from settings import parse\ncfg = parse()",
        "import argparse\ndef parse():\n    parser = argparse.ArgumentParser()\n"
        "    parser.add_argument('--limit', type=int, default=9_000)\n    return parser.parse_args()\n",
    ),
    "not known": (
        "from settings import Settings\ncfg = Settings(**read())",
        "from dataclasses import dataclass\n@dataclass\nclass Settings:\n    limit: int = 512\n",
    ),
}


def findings_of_chats(folder: Path, imports: str, arguments: str, more: str = "") -> dict[str, str]:
    """What is found of a script that renders long questions with a word as the answer: rule and message."""
    rows = [
        {"body": " ".join(WORDS[(n + k) % 11] for k in range(1_200)), "team": TEAMS[n % 4]}
        for n in range(40)
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "mails.jsonl").write_text(lines, encoding="utf-8")
    script = CHAT.format(imports=imports, arguments=arguments, more=more)
    (folder / "train.py").write_text(script, encoding="utf-8")
    found = check_paths([str(folder)], RunSpec(tokenizer=BYTE_TOKENIZER)).findings
    return {one.rule: one.message for one in found}


@pytest.mark.parametrize("kind", SETTINGS_IN_FILES)
def test_chats_that_are_learned_whole(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit stands in a file beside the script; nothing says that none is set."""
    monkeypatch.chdir(tmp_path)
    imports, settings = SETTINGS_IN_FILES[kind]
    (tmp_path / "settings.py").write_text(settings, encoding="utf-8")
    found = findings_of_chats(tmp_path, imports, "SFTConfig(max_length=cfg.limit)")
    assert "the answers are 0.1% of the text in the loss" in found[RULE]
    assert "rows-longer-than-default-max-length" not in found


def test_arguments_that_another_file_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "settings.py").write_text(
        "from trl import SFTConfig\ndef arguments():\n    return SFTConfig(max_length=9_000)\n",
        encoding="utf-8",
    )
    found = findings_of_chats(tmp_path, "from settings import arguments", "arguments()")
    assert RULE in found
    assert "rows-longer-than-default-max-length" not in found


@pytest.mark.parametrize(
    ("imports", "arguments", "more"),
    [
        ("", "SFTConfig(assistant_only_loss=True, max_length=9_000)", ""),
        (
            "from trl import DataCollatorForCompletionOnlyLM as Collator",
            "SFTConfig(max_length=9_000)",
            ", data_collator=Collator('<|im_start|>assistant', tokenizer=tokenizer)",
        ),
    ],
)
def test_chats_whose_answers_alone_are_learned(
    imports: str, arguments: str, more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert RULE not in findings_of_chats(tmp_path, imports, arguments, more)


def test_a_limit_that_is_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the default holds, and the rows lose their answers before any share of them matters."""
    monkeypatch.chdir(tmp_path)
    found = findings_of_chats(tmp_path, "", "SFTConfig('out')")
    assert "rows-longer-than-default-max-length" in found


def test_a_few_chats_among_texts_are_not_counted_for_them() -> None:
    rule = AnswerIsLittleOfTheLoss(load_tokenizer_and_template(RunSpec(tokenizer=BYTE_TOKENIZER)))
    rule.rows = 40
    rule.ends = [AnswerAtEnd("answer", "billing", 1_000, Case("a word")) for _ in range(40)]
    before = [finding.message for finding in rule.findings()]
    rule.chats = [AnswerAtEnd("", "an answer " * 90, 1_000, Case("a chat"))]
    assert [finding.message for finding in rule.findings()] == before
    assert len(before) == 1
