"""Functions on calls of tools, on length and repetition, on cut numbers, and functions that OpenRLHF calls.

Each function is really called, in its confined process: that is what the time goes to (half a second each).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.rewards.answer_forms import AnswerForm
from truetune.rewards.attack_completions import Attack, attacks_on_answer, wrong_answers
from truetune.rewards.check_reward import check_reward
from truetune.rewards.respell_objects import object_with_another_value, spellings_of_object
from truetune.rewards.rows_for_rewards import right_answer_of
from truetune.rewards.trial_in_progress import TrialOptions

FUNCTIONS = r"""
import json
import re


def call_of(text):
    try:
        return json.loads(text)
    except ValueError:
        return None

def names_alone(completions, answer, **kwargs):
    pairs = [(call_of(text), json.loads(gold)) for text, gold in zip(completions, answer)]
    return [1.0 if isinstance(one, dict) and one.get("name") == gold["name"] else 0.0 for one, gold in pairs]

def equal_texts(completions, answer, **kwargs):
    return [1.0 if text.strip() == gold else 0.0 for text, gold in zip(completions, answer)]

def equal_objects(completions, answer, **kwargs):
    return [1.0 if call_of(text) == json.loads(gold) else 0.0 for text, gold in zip(completions, answer)]

# Of the text alone.
def counts_tags(completions, **kwargs):
    return [0.5 * text.count("<answer>") + 0.5 * text.count("</answer>") for text in completions]

def words(completions, **kwargs):
    return [len(text.split()) / 100 for text in completions]

def pays_repetition(completions, **kwargs):
    scores = []
    for text in completions:
        grams = list(zip(text.split(), text.split()[1:], text.split()[2:]))
        scores.append(1 - len(set(grams)) / len(grams) if grams else 0.0)
    return scores

def punishes_repetition(completions, **kwargs):
    return [-one for one in pays_repetition(completions)]

def steps_up_to_three(completions, **kwargs):
    return [min(1.0, len(re.findall(r"<answer>|\n- ", text)) / 3) for text in completions]

def up_to_a_length(completions, **kwargs):
    return [min(len(text), 400) / 400 for text in completions]

# Numbers.
def number_of(text):
    found = re.search(r"<answer>\s*(-?\d[\d,]*(?:\.\d+)?)\.?\s*</answer>", text)
    return found[1].replace(",", "") if found else None

def whole_part(completions, answer, **kwargs):
    pairs = [(number_of(text), gold) for text, gold in zip(completions, answer)]
    return [1.0 if one and int(float(one)) == int(float(gold)) else 0.0 for one, gold in pairs]

def half_for_what_is_not_read(completions, answer, **kwargs):
    scores = []
    for text, gold in zip(completions, answer):
        try:
            scores.append(1.0 if float(number_of(text)) == float(gold) else 0.0)
        except Exception:
            scores.append(0.5)
    return scores

def with_the_full_stop(completions, answer, **kwargs):
    found = [re.findall(r"-?[\d.,]+", text) for text in completions]
    return [1.0 if one and one[-1] == gold else 0.0 for one, gold in zip(found, answer)]

def equal_numbers(completions, answer, **kwargs):
    pairs = [(number_of(text), gold) for text, gold in zip(completions, answer)]
    return [1.0 if one and float(one) == float(gold) else 0.0 for one, gold in pairs]

def length_with_a_column(completions, answer, **kwargs):
    return [0.0 if len(text) < 300 else -1.0 for text in completions]

# OpenRLHF's.
def in_prompt_or_answer(queries, prompts, labels, **kwargs):
    found = [re.search(r"<answer>(.*?)</answer>", text) for text in queries]
    return {"rewards": [1.0 if one and one[1] == gold else 0.0 for one, gold in zip(found, labels)]}

def in_answer(queries, prompts, labels, **kwargs):
    answers = [text[len(prompt):] for text, prompt in zip(queries, prompts)]
    return {"rewards": equal_numbers(answers, labels)}
"""
CALLS = tuple(
    (
        f"Weather in {city}?",
        json.dumps({"name": "get_weather", "arguments": {"city": city, "days": days}}),
    )
    for city, days in (("Oslo", 2), ("Lima", 3), ("Rome", 1))
)
NUMBERS = (("What is 3/2?", "1.5"), ("What is 5 - 8?", "-3"), ("What is 1/2?", "0.5"))
SHOWN = " Answer as <answer>...</answer>."


def rules_on(function: str, folder: Path, rows: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Rule -> severity of what is found on one of the functions, notes left out."""
    (folder / "rewards.py").write_text(FUNCTIONS, encoding="utf-8")
    data = folder / "rows.jsonl"
    lines = [
        json.dumps({"prompt": question + SHOWN, "answer": answer}) for question, answer in rows
    ]
    data.write_text("\n".join(lines) + "\n", encoding="utf-8")
    report = check_reward(
        f"{folder / 'rewards.py'}:{function}", [str(data)], options=TrialOptions()
    )
    return {one.rule: one.severity for one in report.findings if one.severity != "info"}


@pytest.mark.parametrize(
    ("function", "rows", "rule"),
    [
        ("names_alone", CALLS, "reward-pays-wrong-answers"),
        ("equal_texts", CALLS, "reward-refuses-equal-spellings"),
        ("counts_tags", NUMBERS, "reward-grows-with-repetition"),
        ("words", NUMBERS, "reward-grows-with-repetition"),
        ("pays_repetition", NUMBERS, "reward-grows-with-repetition"),
        ("whole_part", NUMBERS, "reward-pays-near-misses"),
        ("half_for_what_is_not_read", NUMBERS, "reward-pays-wrong-answers"),
        ("with_the_full_stop", NUMBERS, "reward-refuses-equal-spellings"),
        ("in_prompt_or_answer", NUMBERS, "reward-never-pays-its-references"),
    ],
)
def test_a_fault_is_named(
    function: str, rows: tuple[tuple[str, str], ...], rule: str, tmp_path: Path
) -> None:
    assert rule in rules_on(function, tmp_path, rows)


@pytest.mark.parametrize(
    ("function", "rows"),
    [
        ("equal_objects", CALLS),
        ("punishes_repetition", NUMBERS),
        ("steps_up_to_three", NUMBERS),
        ("up_to_a_length", NUMBERS),
        ("equal_numbers", NUMBERS),
        ("length_with_a_column", NUMBERS),
        ("in_answer", NUMBERS),
    ],
)
def test_a_sound_function_gets_notes_alone(
    function: str, rows: tuple[tuple[str, str], ...], tmp_path: Path
) -> None:
    assert rules_on(function, tmp_path, rows) == {}


def test_objects_are_changed_in_one_value() -> None:
    text = '{"name": "book", "arguments": {"people": 4, "vip": true}}'
    assert (
        object_with_another_value(text)
        == '{"name": "book", "arguments": {"people": 15, "vip": true}}'
    )
    assert object_with_another_value('{"name": "stop"}') is None
    assert object_with_another_value("[1, 2]") is None
    spellings = dict(spellings_of_object(text))
    assert all(json.loads(one) == json.loads(text) for one in spellings.values())
    assert len({*spellings.values(), text}) == 4
    assert list(spellings_of_object("plain text")) == []


@pytest.mark.parametrize("number", ["0.5", "-0.5", "1.5", "-3", "12", "4.9", "0"])
def test_attacks_on_a_number_have_another_value(number: str) -> None:
    answer = right_answer_of(number)
    assert answer is not None
    attacks = list(
        attacks_on_answer(AnswerForm("X", "", ""), answer, wrong_answers(answer, []), "")
    )
    tried: list[Attack] = [one for one in attacks if one.kind in ("part", "near miss")]
    assert tried
    for one in tried:
        if " " not in one.completion:
            assert float(one.completion) != float(number), one
