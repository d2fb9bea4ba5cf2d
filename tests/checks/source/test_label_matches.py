"""Which comparisons of answers with labels match other labels, and which do not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import json
from datasets import load_dataset
from openai import OpenAI
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline
tok = AutoTokenizer.from_pretrained("m")
model = AutoModelForCausalLM.from_pretrained("m")
pipe = pipeline("text-generation", model="m")
client = OpenAI()
rows = [json.loads(line) for line in open("rows.jsonl")]
def ask(prompt):
    out = model.generate(**tok(prompt, return_tensors="pt"), max_new_tokens=8)
    return tok.decode(out[0])
"""
WRONG = {
    "gold in prediction": 'hits = sum(row["gold"] in ask(row["q"]) for row in rows)',
    "lower on both": 'hits = sum(row["gold"].lower() in ask(row["q"]).lower() for row in rows)',
    "client": """
for row in rows:
    reply = client.chat.completions.create(model="m", messages=[])
    text = reply.choices[0].message.content
    ok = row["gold"] in text
""",
    "startswith": 'hits = sum(ask(row["q"]).strip().startswith(row["grade"]) for row in rows)',
    "labels in order": """
LABELS = ("relevant", "irrelevant")
def read(text):
    return next((label for label in LABELS if label in text), None)
labels = [read(ask(row["q"])) for row in rows]
""",
    "chain of tests": """
def read(prompt):
    text = pipe(prompt)[0]["generated_text"].lower()
    if "positive" in text:
        return 1
    elif "not positive" in text:
        return 0
""",
    "one side": """
right = 0
for row in rows:
    prediction = ask(row["q"]).strip().lower()
    right += int(prediction == row["name"])
""",
    "constant": 'yes = [ask(row["q"]).lower() == "Yes" for row in rows]',
    "part by all": """
right = 0
for row in rows[:100]:
    if ask(row["q"]) == row["name"]:
        right += 1
print(right / len(rows))
""",
}
FINE = {
    "whole": 'hits = sum(row["gold"] == ask(row["q"]).strip() for row in rows)',
    "apart": 'hits = sum(row["name"] in ask(row["q"]) for row in rows)',
    "longest first": """
LABELS = ("irrelevant", "relevant")
def read(text):
    return next((label for label in LABELS if label in text), None)
labels = [read(ask(row["q"])) for row in rows]
""",
    "both sides": """
right = sum(ask(row["q"]).strip().lower() == row["name"].strip().lower() for row in rows)
""",
    "lower labels": 'right = sum(ask(row["q"]).strip().lower() == row["gold"] for row in rows)',
    "list": 'known = [row["gold"] in ["valid", "invalid"] for row in rows]',
    "own text": 'marked = ["a" in row["q"] or "ab" in row["q"] for row in rows]',
    "part by part": """
right = 0
part = rows[:100]
for row in part:
    if ask(row["q"]) == row["name"]:
        right += 1
print(right / len(part))
""",
    "unknown labels": """
others = [json.loads(line) for line in open("nowhere.jsonl")]
hits = sum(row["gold"] in ask(row["q"]) for row in others)
""",
}


def count_findings(text: str, folder: Path) -> int:
    rows = [
        {
            "q": f"question {n}",
            "gold": ("valid", "invalid")[n % 2],
            "grade": ("1", "10", "2")[n % 3],
            "name": ("Paris", "Rome", "Oslo")[n % 3],
        }
        for n in range(60)
    ]
    lines = "\n".join(json.dumps(row) for row in rows)
    (folder / "rows.jsonl").write_text(lines, encoding="utf-8")
    rule = find_rule("label-comparison-miscounts-answers")
    return len(run_rule(parse_module(HEAD + text, str(folder / "score.py")), rule).findings)


@pytest.mark.parametrize("code", WRONG.values(), ids=WRONG)
def test_wrong_matches_are_found(code: str, tmp_path: Path) -> None:
    assert count_findings(code, tmp_path) == 1


@pytest.mark.parametrize("code", FINE.values(), ids=FINE)
def test_right_matches_are_left_alone(code: str, tmp_path: Path) -> None:
    assert count_findings(code, tmp_path) == 0
