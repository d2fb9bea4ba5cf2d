"""Reward functions that stop at a line end, or at the comma of a number, and functions that read on.

Each function is really called, in its confined process: that is what the time goes to (half a second each).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.rewards.check_reward import check_reward
from truetune.rewards.trial_in_progress import TrialOptions

FUNCTIONS = r"""
import re


def texts_of(completions):
    return [one if isinstance(one, str) else one[-1]["content"] for one in completions]

def scored(pattern, completions, flags=0):
    return [1.0 if re.compile(pattern, flags).match(text) else 0.0 for text in texts_of(completions)]

def compare(values, answers):
    pairs = zip(values, answers)
    return [1.0 if value is not None and abs(value - float(gold)) < 1e-6 else 0.0 for value, gold in pairs]

# Forms that stop at a line end.
def tags_without_dotall(completions, **kwargs):
    return scored(r"^\s*<think>.*?</think>\s*<answer>.*?</answer>\s*$", completions)

def lines_of_their_own(completions, **kwargs):
    return scored(r"^<reasoning>\n.*?\n</reasoning>\n<answer>\n.*?\n</answer>\n$", completions)

def other_flags(completions, **kwargs):
    return scored(r"<scratchpad>.+</scratchpad>\s*<final>.+</final>", completions, re.I | re.M)

def dense_with_form(completions, answer, **kwargs):
    found = [re.search(r"<think>.*</think>\s*<answer>(.*?)</answer>", text) for text in texts_of(completions)]
    return [1.0 if one and one[1].strip() == gold else 0.0 for one, gold in zip(found, answer)]

def match_to_the_mark(completions, answer, **kwargs):
    found = [re.match(r".*#### (-?[\d.]+)", text) for text in texts_of(completions)]
    return [1.0 if one and one[1] == gold else 0.0 for one, gold in zip(found, answer)]

# Forms that read on.
def tags_with_dotall(completions, **kwargs):
    return scored(r"^\s*<think>.*?</think>\s*<answer>.*?</answer>\s*$", completions, re.S)

def inline_flag(completions, **kwargs):
    return scored(r"(?s)^<think>.*?</think>\s*<answer>.*?</answer>$", completions)

def classes_for_any_character(completions, **kwargs):
    return scored(r"^<think>[\s\S]*?</think>\s*<answer>[^<]*</answer>\s*$", completions)

def counts_tags(completions, **kwargs):
    tags = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")
    return [sum(0.25 for tag in tags if text.count(tag) == 1) - 0.0001 * len(text) for text in texts_of(completions)]

def strict_lines_with_dotall(completions, **kwargs):
    return scored(r"^<reasoning>\n.*?\n</reasoning>\n<answer>\n.*?\n</answer>\n$", completions, re.S)

def length_alone(completions, **kwargs):
    return [-0.001 * len(text.split()) for text in texts_of(completions)]

# Numbers of which a part is read.
def last_number(completions, answer, **kwargs):
    found = [re.findall(r"-?\d+(?:\.\d+)?", text) for text in texts_of(completions)]
    return compare([float(one[-1]) if one else None for one in found], answer)

def first_number(completions, answer, **kwargs):
    found = [re.search(r"\d+", text) for text in texts_of(completions)]
    return compare([float(one[0]) if one else None for one in found], answer)

def number_in_a_box(completions, answer, **kwargs):
    found = [re.search(r"boxed\{\D*(\d+)", text) for text in texts_of(completions)]
    return compare([float(one[1]) if one else None for one in found], answer)

def number_behind_a_word(completions, answer, **kwargs):
    found = [re.search(r"answer is \$?(\d+)", text, re.I) for text in texts_of(completions)]
    return compare([float(one[1]) if one else None for one in found], answer)

def number_at_the_end(completions, answer, **kwargs):
    found = [re.search(r"(\d+)\D*$", text) for text in texts_of(completions)]
    return compare([float(one[1]) if one else None for one in found], answer)

# Numbers that are read whole, or texts that are compared as they are.
def commas_removed(completions, answer, **kwargs):
    found = [re.findall(r"-?\d[\d,]*(?:\.\d+)?", text) for text in texts_of(completions)]
    return compare([float(one[-1].replace(",", "")) if one else None for one in found], answer)

def all_commas_removed(completions, answer, **kwargs):
    found = [re.findall(r"-?\d+", text.replace(",", "").replace("{}", "")) for text in texts_of(completions)]
    return compare([float(one[-1]) if one else None for one in found], answer)

def equal_texts(completions, answer, **kwargs):
    found = [re.search(r"<answer>\s*(.*?)\s*</answer>", text, re.S) for text in texts_of(completions)]
    return [1.0 if one and one[1] == gold else 0.0 for one, gold in zip(found, answer)]

def bare_integer_in_tags(completions, answer, **kwargs):
    found = [re.search(r"<answer>\s*(-?\d+)\s*</answer>", text) for text in texts_of(completions)]
    return [1.0 if one and one[1] == gold else 0.0 for one, gold in zip(found, answer)]
"""
ROWS = (
    ("What is 30 times 410?", "12300"),
    ("What is 25 * 50?", "1250"),
    ("What is 30 + 41?", "71"),
)
SMALL = (("What is 3 times 41?", "123"), ("What is 5 * 5?", "25"), ("What is 30 + 41?", "71"))


def rules_on(
    function: str, folder: Path, rows: tuple[tuple[str, str], ...] = ROWS, note: str = ""
) -> dict[str, str]:
    """Rule -> severity of what is found on one of the functions."""
    (folder / "rewards.py").write_text(FUNCTIONS, encoding="utf-8")
    data = folder / "rows.jsonl"
    lines = [json.dumps({"prompt": question + note, "answer": answer}) for question, answer in rows]
    data.write_text("\n".join(lines) + "\n", encoding="utf-8")
    report = check_reward(
        f"{folder / 'rewards.py'}:{function}", [str(data)], options=TrialOptions()
    )
    return {finding.rule: finding.severity for finding in report.findings}


@pytest.mark.parametrize(
    "function",
    [
        "tags_without_dotall",
        "lines_of_their_own",
        "other_flags",
        "dense_with_form",
        "match_to_the_mark",
    ],
)
def test_functions_that_stop_at_a_line_end(function: str, tmp_path: Path) -> None:
    assert rules_on(function, tmp_path).get("reward-stops-at-line-ends") == "warning"


@pytest.mark.parametrize(
    "function",
    [
        "tags_with_dotall",
        "inline_flag",
        "classes_for_any_character",
        "counts_tags",
        "strict_lines_with_dotall",
        "length_alone",
    ],
)
def test_functions_that_read_over_line_ends(function: str, tmp_path: Path) -> None:
    assert "reward-stops-at-line-ends" not in rules_on(function, tmp_path)


@pytest.mark.parametrize(
    "function",
    ["last_number", "first_number", "number_in_a_box", "number_behind_a_word", "number_at_the_end"],
)
def test_numbers_of_which_a_part_is_read(function: str, tmp_path: Path) -> None:
    assert rules_on(function, tmp_path).get("reward-refuses-equal-spellings") == "warning"


@pytest.mark.parametrize(
    "function", ["commas_removed", "all_commas_removed", "equal_texts", "bare_integer_in_tags"]
)
def test_numbers_that_are_read_whole(function: str, tmp_path: Path) -> None:
    found = rules_on(function, tmp_path)
    assert found.get("reward-refuses-equal-spellings") in (None, "info")
    assert "reward-stops-at-line-ends" not in found


@pytest.mark.parametrize(
    ("rows", "note"),
    [(SMALL, ""), (ROWS, " Give an integer without commas."), (ROWS, " Answer with digits only.")],
)
def test_numbers_that_no_answer_separates(
    rows: tuple[tuple[str, str], ...], note: str, tmp_path: Path
) -> None:
    found = rules_on("last_number", tmp_path, rows, note)
    assert found.get("reward-refuses-equal-spellings") in (None, "info")
