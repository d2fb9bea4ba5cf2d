"""Reward functions that reject every row's own reference (SRC160), however they are written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.lint import lint

HEAD = """
import re
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

SYSTEM = "Think in <reasoning></reasoning>, then answer in <answer></answer>."
PATTERN = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)

def extract_answer(text):
    found = PATTERN.search(text)
    return found.group(1).strip() if found else ""

def extract_hash(text):
    if "####" not in text:
        return None
    return text.split("####")[1].strip()

def chat(row):
    return {"prompt": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": row["question"]}]}

def parsed(row):
    return {**chat(row), "answer": extract_hash(row["answer"])}
"""
HUB = 'rows = load_dataset("openai/gsm8k", "main", split="train")\n'
LOCAL = 'rows = load_dataset("json", data_files="rows.jsonl", split="train")\n'
TAIL = "\nGRPOTrainer(model='m', reward_funcs={}, args=GRPOConfig('out'), train_dataset=rows).train()\n"
CONTENT = "[extract_answer(one[0]['content']) for one in completions]"
WHOLE = f"""
def correct(prompts, completions, answer, **kwargs):
    got = {CONTENT}
    return [2.0 if g == a else 0.0 for g, a in zip(got, answer)]
"""
LOOP = """
def correct(completions, **kwargs):
    rewards = []
    for completion, gold in zip(completions, kwargs["answer"]):
        m = re.search(r"<answer>\\s*(-?[\\d,]+)\\s*</answer>", completion[0]["content"])
        if m is None:
            rewards.append(0.0)
            continue
        rewards.append(1.0 if m.group(1) == gold else 0.0)
    return rewards
"""
NUMBER = """
def correct(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        try:
            value = int(extract_answer(completion[0]["content"]))
        except ValueError:
            value = None
        rewards.append(1.0 if value == gold else 0.0)
    return rewards
"""
MISSING = f"""
def correct(completions, solution=None, **kwargs):
    got = {CONTENT}
    gold = solution or [None] * len(got)
    return [1.0 if g == a else 0.0 for g, a in zip(got, gold)]
"""
FORMAT = """
def shaped(completions, **kwargs):
    return [0.5 if re.search(r"<reasoning>.*</reasoning>", one[0]["content"], re.S) else 0.0 for one in completions]
"""
ODD_FORM = """
def correct(completions, answer, **kwargs):
    found = [re.search(r"RESULT=(\\d+)", one[0]["content"]) for one in completions]
    return [1.0 if f and f.group(1) == extract_hash(a) else 0.0 for f, a in zip(found, answer)]
"""
JUDGED = """
def correct(completions, answer, **kwargs):
    return [client.score(one[0]["content"], a) for one, a in zip(completions, answer)]
"""
WRONG = {
    "whole solution, gsm8k": HUB + "rows = rows.map(chat)\n" + WHOLE + TAIL.format("[correct]"),
    "whole solution, file": LOCAL + "rows = rows.map(chat)\n" + WHOLE + TAIL.format("correct"),
    "loop": HUB + "rows = rows.map(chat)\n" + LOOP + TAIL.format("[correct]"),
    "number against text": HUB + "rows = rows.map(parsed)\n" + NUMBER + TAIL.format("[correct]"),
    "a column that does not arrive": HUB + "rows = rows.map(parsed)\n" + MISSING + TAIL.format("[correct]"),
    "beside one of the form": HUB + "rows = rows.map(chat)\n" + FORMAT + WHOLE + TAIL.format("[shaped, correct]"),
}  # fmt: skip
RIGHT = {
    "parsed": HUB + "rows = rows.map(parsed)\n" + WHOLE + TAIL.format("[correct]"),
    "parsed, file": LOCAL + "rows = rows.map(parsed)\n" + LOOP + TAIL.format("[correct]"),
    "number against number": (
        HUB + "rows = rows.map(lambda row: {**chat(row), 'answer': int(extract_hash(row['answer']))})\n"
        + NUMBER + TAIL.format("[correct]")
    ),
    "form alone": HUB + "rows = rows.map(chat)\n" + FORMAT + TAIL.format("[shaped]"),
    "a form that is not tried": HUB + "rows = rows.map(chat)\n" + ODD_FORM + TAIL.format("[correct]"),
    "a judge": HUB + "rows = rows.map(chat)\n" + JUDGED + TAIL.format("[correct]"),
    "rows that are not here": (
        'rows = load_dataset("org/rows", split="train").map(chat)\n' + WHOLE + TAIL.format("[correct]")
    ),
}  # fmt: skip


def _codes(text: str, folder: Path) -> list[str]:
    rows = [
        {"question": f"What is {n} + 1?", "answer": f"{n} + 1 is {n + 1}.\n#### {n + 1}"}
        for n in range(1, 30, 5)
    ]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (folder / "train.py").write_text(HEAD + text, encoding="utf-8")
    found = lint([folder / "train.py"], select=["reward-is-never-given"]).findings
    return [one.severity for one in found]


@pytest.mark.parametrize("case", WRONG)
def test_a_reward_that_no_answer_gets_is_told(case: str, tmp_path: Path) -> None:
    assert _codes(WRONG[case], tmp_path) == ["error"]


@pytest.mark.parametrize("case", RIGHT)
def test_a_reward_that_an_answer_gets_is_left_alone(case: str, tmp_path: Path) -> None:
    assert _codes(RIGHT[case], tmp_path) == []
