"""Reward functions that want a mark which the prompts hold already, and that take a comma alone for a number.

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


def scored(pattern, completions, flags=re.S):
    return [1.0 if re.match(pattern, text, flags) else 0.0 for text in completions]

def compare(pattern, completions, answers):
    found = [re.findall(pattern, text) for text in completions]
    values = [one[-1].replace(",", "").rstrip(".") if one else "" for one in found]
    return [1.0 if value == gold else 0.0 for value, gold in zip(values, answers)]

# The mark is wanted again.
def begins_with_mark(completions, **kwargs):
    return scored(r"^<think>.*?</think>\s*\S", completions)

def tags_with_mark(completions, **kwargs):
    return scored(r"^<think>.*?</think>\s*<answer>.*?</answer>$", completions)

def one_of_each_mark(completions, **kwargs):
    return [float(text.count("<think>") == 1 and text.count("</think>") == 1) for text in completions]

def starts_and_closes(completions, **kwargs):
    return [float(text.startswith("<think>") and "</think>" in text) for text in completions]

def right_behind_thoughts(completions, answer, **kwargs):
    found = [re.match(r"<think>.*</think>\s*(\S+)\s*$", text, re.S) for text in completions]
    return [1.0 if one and one[1] == gold else 0.0 for one, gold in zip(found, answer)]

# It is not.
def mark_is_optional(completions, **kwargs):
    return scored(r"^(?:<think>)?.*?</think>\s*\S", completions)

def puts_mark_in_front(completions, **kwargs):
    return scored(r"^<think>(?!.*<think>).*?</think>\s*\S", ["<think>\n" + text for text in completions])

def closing_mark_alone(completions, **kwargs):
    return [float(text.count("</think>") == 1) for text in completions]

def right_number(completions, answer, **kwargs):
    return compare(r"-?\d+", completions, answer)

def length_alone(completions, **kwargs):
    return [-0.001 * len(text.split()) for text in completions]

# A comma alone is a number.
def comma_alone(completions, answer, **kwargs):
    return compare(r"-?[\d,]+(?:\.\d+)?", completions, answer)

def comma_or_point_alone(completions, answer, **kwargs):
    return compare(r"[\d,.]*[\d,]", completions, answer)

def comma_of_any_length(completions, answer, **kwargs):
    return compare(r"[0-9,]+", completions, answer)

# Numbers begin with a digit.
def digit_first(completions, answer, **kwargs):
    return compare(r"-?\d[\d,]*(?:\.\d+)?", completions, answer)

def digits_alone(completions, answer, **kwargs):
    return compare(r"-?\d+", completions, answer)

def thousands_spelled_out(completions, answer, **kwargs):
    return compare(r"-?\d{1,3}(?:,\d{3})+|-?\d+", completions, answer)
"""
OPENED = "<User>What is {}?<Assistant><think>\n"
WANT_MARK = (
    "begins_with_mark", "tags_with_mark", "one_of_each_mark", "starts_and_closes", "right_behind_thoughts",
)  # fmt: skip
WANT_NO_MARK = (
    "mark_is_optional", "puts_mark_in_front", "closing_mark_alone", "right_number", "length_alone",
)  # fmt: skip
COMMA_ALONE = ("comma_alone", "comma_or_point_alone", "comma_of_any_length")
WHOLE = ("digit_first", "digits_alone", "thousands_spelled_out")


def messages_of(folder: Path, name: str, prompt: str) -> dict[str, tuple[str, str]]:
    """Rule -> severity and message."""
    (folder / "rewards.py").write_text(FUNCTIONS, encoding="utf-8")
    rows = folder / "rows.jsonl"
    asked = (("30 + 41", "71"), ("5 * 50", "250"), ("7 * 12", "84"))
    lines = [json.dumps({"prompt": prompt.format(ask), "answer": gold}) for ask, gold in asked]
    rows.write_text("\n".join(lines) + "\n", encoding="utf-8")
    report = check_reward(f"{folder / 'rewards.py'}:{name}", [str(rows)], options=TrialOptions())
    return {one.rule: (one.severity, one.message) for one in report.findings}


@pytest.mark.parametrize("name", WANT_MARK)
def test_a_mark_that_the_prompt_holds(tmp_path: Path, name: str) -> None:
    severity, message = messages_of(tmp_path, name, OPENED)["reward-never-pays-its-references"]
    assert severity == "error"
    assert "only pays completions that begin with <think>" in message


@pytest.mark.parametrize("name", WANT_NO_MARK)
def test_a_mark_that_is_not_wanted_again(tmp_path: Path, name: str) -> None:
    assert "reward-never-pays-its-references" not in messages_of(tmp_path, name, OPENED)


@pytest.mark.parametrize(
    "prompt", ["What is {}?", "What is {}? Think within <think> and </think>.", "{}: use <think>"]
)
def test_a_mark_that_the_prompt_does_not_open(tmp_path: Path, prompt: str) -> None:
    found = messages_of(tmp_path, "begins_with_mark", prompt)
    assert "reward-never-pays-its-references" not in found


@pytest.mark.parametrize("name", COMMA_ALONE)
def test_a_comma_behind_the_number(tmp_path: Path, name: str) -> None:
    severity, message = messages_of(tmp_path, name, "What is {}?")["reward-refuses-equal-spellings"]
    assert severity == "warning"
    assert "words after a comma" in message


@pytest.mark.parametrize("name", WHOLE)
def test_numbers_that_begin_with_a_digit(tmp_path: Path, name: str) -> None:
    found = messages_of(tmp_path, name, "What is {}?").get("reward-refuses-equal-spellings")
    assert found is None or "words after a comma" not in found[1]
