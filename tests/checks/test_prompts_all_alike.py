"""Prompts that are all one text while their answers differ, and data sets that are meant so."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from truetune.checks.check_paths import check_paths
from truetune.settings.run_spec import RunSpec

RULE = "prompts-all-alike"
WORDS = [
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
    "red",
]
TEAMS = ("billing", "shipping", "returns")


def sentence(rng: random.Random, words: int = 8) -> str:
    return " ".join(rng.choices(WORDS, k=words)) + f" {rng.randrange(10_000)}"


def rows(count: int = 40) -> list[dict[str, Any]]:
    rng = random.Random(0)
    return [
        {"id": f"row-{n}", "mail": sentence(rng), "team": rng.choice(TEAMS), "reply": sentence(rng)}
        for n in range(count)
    ]


def severities(folder: Path, made: list[dict[str, Any]], script: str = "") -> list[str]:
    text = "".join(json.dumps(one) + "\n" for one in made)
    (folder / "rows.jsonl").write_text(text, encoding="utf-8")
    if script:
        (folder / "train.py").write_text(script, encoding="utf-8")
    report = check_paths([str(folder if script else folder / "rows.jsonl")], RunSpec())
    return [one.severity for one in report.findings if one.rule == RULE]


def chat(prompt: str, answer: str, **more: Any) -> dict[str, Any]:
    turns = [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
    return {"messages": turns, **more}


FIRING = {
    "placeholder in pairs": [
        {"prompt": "Sort: {mail}", "completion": one["team"]} for one in rows()
    ],
    "placeholder in chats": [chat("Answer this mail: {mail}", one["reply"]) for one in rows()],
    "labels beside a column": [
        {"instruction": "Which team?", "output": one["team"], "mail": one["mail"]} for one in rows()
    ],
    "nearly all": [
        *(chat("Reply to {{mail}}: {mail}", one["reply"]) for one in rows(60)),
        chat("Who are you?", "A bot."),
    ],
    "placeholder in alpaca": [
        {"instruction": "Summarise: {document}", "input": "", "output": one["reply"]}
        for one in rows()
    ],
}
SILENT = {
    "filled": [{"prompt": f"Sort: {one['mail']}", "completion": one["team"]} for one in rows()],
    "one request is meant": [chat("Tell me a joke.", one["reply"]) for one in rows()],
    "ids beside it": [chat("Tell me a joke.", one["reply"], id=one["id"]) for one in rows()],
    "one answer": [chat("Say it: {mail}", "It.") for _ in rows()],
    "system prompt alike": [
        {
            "messages": [
                {"role": "system", "content": "Sort the mail {as asked}."},
                {"role": "user", "content": one["mail"]},
                {"role": "assistant", "content": one["team"]},
            ]
        }
        for one in rows()
    ],
    "pictures": [
        chat("What is this? {mail}", one["reply"], image=f"{one['id']}.png") for one in rows()
    ],
    "few rows": [chat("Reply to {mail}", one["reply"]) for one in rows(10)],
    "the column is the answer": [
        {"prompt": "Write a mail.", "completion": one["mail"]} for one in rows()
    ],
}
SFT = """
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
rows = load_dataset("json", data_files="rows.jsonl", split="train")
def form(row):
    mail = row["mail"].strip()
    return BODY
rows = rows.map(form, remove_columns=rows.column_names)
SFTTrainer("some/model", args=SFTConfig("out"), train_dataset=rows).train()
"""
FORMED = {
    "pair": '{"prompt": "Sort this mail: %s", "completion": row["team"]}',
    "text": '{"text": "### Mail:\\n" + "{mail}" + "\\n### Team: " + row["team"]}',
    "chat": '{"messages": [{"role": "user", "content": "Reply."}, {"role": "assistant", "content": row["reply"]}]}',
}
SOUND = {
    "pair": '{"prompt": f"Sort this mail: {mail}", "completion": row["team"]}',
    "text": '{"text": f"### Mail:\\n{mail}\\n### Team: {row[\'team\']}"}',
    "text of one column": '{"text": f"<s>{mail}</s>"}',
}


@pytest.mark.parametrize("name", FIRING)
def test_prompts_that_are_all_alike_are_told(name: str, tmp_path: Path) -> None:
    assert severities(tmp_path, FIRING[name]) == ["error"]


@pytest.mark.parametrize("name", SILENT)
def test_rows_that_are_meant_so_are_left_alone(name: str, tmp_path: Path) -> None:
    assert severities(tmp_path, SILENT[name]) == []


def test_a_column_of_notes_beside_free_answers_is_a_note(tmp_path: Path) -> None:
    made = [chat("Tell me a joke.", one["reply"], about=one["mail"]) for one in rows()]
    assert severities(tmp_path, made) == ["info"]


@pytest.mark.parametrize("name", FORMED)
def test_rows_that_a_script_makes_are_compared(name: str, tmp_path: Path) -> None:
    assert severities(tmp_path, rows(), SFT.replace("BODY", FORMED[name])) == ["error"]


@pytest.mark.parametrize("name", SOUND)
def test_rows_that_a_script_fills_in_are_left_alone(name: str, tmp_path: Path) -> None:
    assert severities(tmp_path, rows(), SFT.replace("BODY", SOUND[name])) == []


TASKS = ("Answer this message: {mail}", "Write a reply to this message: {mail}")


def test_a_few_prompts_with_an_unfilled_placeholder(tmp_path: Path) -> None:
    made = [{"prompt": TASKS[n % 2], "completion": one["reply"]} for n, one in enumerate(rows(120))]
    assert severities(tmp_path, made) == ["error"]


def test_a_few_prompts_beside_a_column_that_stands_nowhere(tmp_path: Path) -> None:
    made = [
        {"prompt": TASKS[n % 2][:20], "completion": one["reply"], "mail": one["mail"]}
        for n, one in enumerate(rows(120))
    ]
    assert severities(tmp_path, made) == ["info"]


def test_a_few_prompts_that_are_meant(tmp_path: Path) -> None:
    few = ("Write a poem.", "Tell me a joke.")
    made = [{"prompt": few[n % 2], "completion": one["reply"]} for n, one in enumerate(rows(120))]
    assert severities(tmp_path, made) == []
    # Labels of a few prompts are judged by the rules on answers.
    made = [{"prompt": few[n % 2], "completion": one["team"]} for n, one in enumerate(rows(120))]
    assert severities(tmp_path, made) == []


def test_a_few_prompts_among_many(tmp_path: Path) -> None:
    made = [
        {"prompt": TASKS[n % 2] if n < 60 else one["mail"], "completion": one["reply"]}
        for n, one in enumerate(rows(120))
    ]
    assert severities(tmp_path, made) == []
