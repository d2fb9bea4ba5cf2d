"""Reward functions that read another form of the answer than the prompts of the rows ask for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.lint import lint

BOXED = "Think step by step and put the final answer in \\boxed{}."
TAGS = "Write your thoughts in <think> </think> and the result in <answer> </answer>."
HASHES = "End with a line that begins with #### and holds the number."
HEAD = """
import re
from datasets import load_dataset
from trl import GRPOTrainer

rows = load_dataset("json", data_files="rows.jsonl", split="train")
"""
TAIL = '\nGRPOTrainer(model="m", reward_funcs=[right], train_dataset=rows).train()\n'
SEARCH = """
PATTERN = re.compile(r"<answer>\\s*(.*?)\\s*</answer>", re.DOTALL)
def right(completions, answer, **kwargs):
    found = [PATTERN.search(one[0]["content"]) for one in completions]
    return [1.0 if one and one.group(1) == gold else 0.0 for one, gold in zip(found, answer)]
"""
FIND_BOXED = """
def take(text):
    start = text.rfind("\\\\boxed{")
    return None if start < 0 else text[start + 7 : text.find("}", start)]
def right(completions, answer, **kwargs):
    return [2.0 if take(one[0]["content"]) == gold else 0.0 for one, gold in zip(completions, answer)]
"""
SPLIT = """
def right(completions, answer, **kwargs):
    scores = []
    for one, gold in zip(completions, answer):
        parts = one[0]["content"].split("####")
        scores.append(1.0 if len(parts) > 1 and parts[-1].strip() == gold else 0.0)
    return scores
"""
FORM = """
def right(completions, **kwargs):
    return [0.5 if re.search(r"<result>.*</result>", one[0]["content"], re.DOTALL) else 0.0 for one in completions]
"""
BOTH = """
def right(completions, answer, **kwargs):
    scores = []
    for one, gold in zip(completions, answer):
        text = one[0]["content"]
        found = re.search(r"<answer>(.*?)</answer>", text, re.DOTALL) or re.search(r"boxed\\{(.*?)\\}", text)
        scores.append(1.0 if found and found.group(1).strip() == gold else 0.0)
    return scores
"""
ANY_NUMBER = """
def right(completions, answer, **kwargs):
    last = [re.findall(r"-?\\d+", one[0]["content"]) for one in completions]
    return [1.0 if found and found[-1] == gold else 0.0 for found, gold in zip(last, answer)]
"""
LONGER = """
def right(completions, **kwargs):
    return [min(len(one[0]["content"]) / 100, 1.0) for one in completions]
"""
WRONG = {
    "tags against a box": (BOXED, SEARCH),
    "a box against tags": (TAGS, FIND_BOXED),
    "hashes against a box": (BOXED, SPLIT),
    "tags against hashes": (HASHES, SEARCH),
    "the form alone": (BOXED, FORM),
    "another tag": (TAGS, FORM),
}
RIGHT = {
    "tags": (TAGS, SEARCH),
    "a box": (BOXED, FIND_BOXED),
    "hashes": (HASHES, SPLIT),
    "either": (BOXED, BOTH),
    "the last number": (BOXED, ANY_NUMBER),
    "length": (BOXED, LONGER),
    "both named": (f"{BOXED} Wrap it in <answer></answer>.", SEARCH),
    "named in words": (f"{BOXED} Use answer tags around it.", SEARCH),
    "no form named": ("Answer with care.", SEARCH),
}


def _findings(prompt: str, code: str, folder: Path) -> list[str]:
    rows = []
    for n in range(3, 40, 5):
        turns = [{"role": "user", "content": f"What is {n} + 1?"}]
        rows.append(
            {"prompt": [{"role": "system", "content": prompt}, *turns], "answer": str(n + 1)}
        )
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (folder / "train.py").write_text(HEAD + code + TAIL, encoding="utf-8")
    found = lint([folder / "train.py"], select=["reward-reads-another-form"]).findings
    return [one.message for one in found]


@pytest.mark.parametrize("case", WRONG)
def test_a_reward_of_another_form_than_the_prompts_ask_for_is_told(
    case: str, tmp_path: Path
) -> None:
    assert len(_findings(*WRONG[case], tmp_path)) == 1


@pytest.mark.parametrize("case", RIGHT)
def test_a_reward_that_reads_what_the_prompts_ask_for_is_left_alone(
    case: str, tmp_path: Path
) -> None:
    assert _findings(*RIGHT[case], tmp_path) == []
