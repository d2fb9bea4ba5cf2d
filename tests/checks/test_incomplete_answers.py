"""Answers of rows that break off, and what `score` says of answers that end inside of their thinking."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import truetune
from truetune.generation.answers_with_unclosed_parts import unfinished_part

OPEN = {
    "thinking": "<think>\nLet me see. Ten times three is thirty, and",
    "thinking at the end of a sentence": "<think>I add both. That gives seven.",
    "reasoning": "<reasoning>First I count the",
    "fence": "Here it is:\n\n```python\ndef f(x):\n    return x +",
    "fence behind a whole one": "```sh\nls\n```\nand then\n```python\nprint(1",
    "JSON": '{"name": "Ada", "tags": ["a", "b',
    "JSON list": '[{"a": 1}, {"a": 2',
}
CLOSED = {
    "thinking": "<think>\nTen times three is thirty.\n</think>\n\nIt is thirty.",
    "thinking that the template opens": "Ten times three.\n</think>\nIt is thirty.",
    "a tag in a sentence": "The <think> tag opens the thinking part.",
    "fence": "```python\nprint(1)\n```",
    "a fence with a word behind its end": "```python\nprint(1)\n``` end",
    "a fence in a longer one": "````markdown\n```python\nprint(1)\n````",
    "JSON": '{"name": "Ada", "tags": ["a", "b"]}',
    "JSON with words behind it": '{"a": 1} is the object.',
    "a reference": "[1] says so",
    "braces in a text": '{"a": "{[("}',
}


@pytest.mark.parametrize("case", OPEN)
def test_an_open_part_is_seen(case: str) -> None:
    assert unfinished_part(OPEN[case]) is not None


@pytest.mark.parametrize("case", CLOSED)
def test_a_whole_answer_is_left_alone(case: str) -> None:
    assert unfinished_part(CLOSED[case]) is None


def test_a_fence_of_the_prompt_is_closed_by_the_answer() -> None:
    assert unfinished_part("    return 1\n```", "Continue:\n```python\ndef f():") is None


WORDS = [
    "the",
    "shop",
    "opens",
    "late",
    "and",
    "its",
    "owner",
    "counts",
    "all",
    "boxes",
    "that",
    "came",
    "before",
    "noon",
    "while",
    "others",
    "wait",
]


def _found(folder: Path, answers: list[str]) -> list[str]:
    rows = [
        {"messages": [{"role": "user", "content": f"Tell me about {n}."}, {"role": "assistant", "content": answer}]}
        for n, answer in enumerate(answers)
    ]  # fmt: skip
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    report = truetune.check([str(folder / "rows.jsonl")], select=["answer-is-incomplete"])
    return [one.severity for one in report.findings]


def _text(words: int, seed: int, end: str) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=words)) + end


def test_lengths_that_pile_up_at_a_ceiling_are_a_cut(tmp_path: Path) -> None:
    answers = [_text(random.Random(n).randint(10, 95), n, ".") for n in range(60)]
    cut = [_text(100 + n % 5, n, "") for n in range(20)]
    assert _found(tmp_path, answers + cut) == ["warning"]


@pytest.mark.parametrize("end", ["", "."])
def test_a_style_without_full_stops_is_no_cut(end: str, tmp_path: Path) -> None:
    answers = [_text(random.Random(n).randint(10, 200), n, "") for n in range(80)]
    whole = [_text(random.Random(n).randint(10, 200), n, end) for n in range(40)]
    assert _found(tmp_path, answers + whole) == []


ENDINGS = {
    "signature": "\n\nWith kind regards,\nyour house bank",
    "signature on one line": "\n\nKind regards, your house bank",
    "name": "\n\nMany thanks\nMaria Lindqvist",
    "address": "\n\nShop of Lights\n12 Harbour Road, 2nd floor\nPort of Leith",
    "code": "\n\n    for row in rows:\n        total += row.amount\n    return total",
    "label": "\n\nCategory: billing question",
    "steps": "\n\n1. Open the case\n2. Take out the board\n3. Wait for the lamp",
    "title": "\n\nThe Lady of the Lake",
    "no full stop": " and so the shop closes early",
    "emoji and link": "\n\nSee https://shop.example/help/contact",
}


@pytest.mark.parametrize("case", ENDINGS)
def test_endings_without_a_full_stop_are_no_cut(case: str, tmp_path: Path) -> None:
    answers = [_text(90 + n % 9, n, ".") + ENDINGS[case] for n in range(60)]
    assert _found(tmp_path, answers) == []
    assert _found(tmp_path, answers + [_text(20 + n % 50, n, ".") for n in range(60)]) == []


def test_answers_cut_inside_of_words_are_told(tmp_path: Path) -> None:
    whole = [_text(random.Random(n).randint(10, 95), n, " boxes.") for n in range(60)]
    cut = [_text(100 + n % 5, n, " yesterd") for n in range(20)]
    assert _found(tmp_path, [*whole, "It came yesterday evening.", *cut]) == ["warning"]


def test_rows_with_open_thinking_are_told(tmp_path: Path) -> None:
    assert _found(tmp_path, [OPEN["thinking"]] * 3 + [CLOSED["thinking"]] * 30) == ["warning"]
    assert _found(tmp_path, list(CLOSED.values())) == []


@pytest.mark.parametrize("closed", [False, True])
def test_answers_cut_in_their_thinking_get_other_advice(closed: bool, tmp_path: Path) -> None:
    path = tmp_path / "predictions.jsonl"
    end = "\n</think>\n" + "So it goes on and on. " * 40 if closed else ""
    rows = [
        {
            "prompt": f"What is {n} plus 1?",
            "prediction": f"<think>\nI have {n}. " + _text(300, n, ".") + end,
            "reference": f"{n + 1}, as one more than {n} is the next number.",
        }
        for n in range(30)
    ]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    remedies = " ".join(one.remedy or "" for one in truetune.score(str(path)).findings)
    assert "stop token of each answer has a label" not in remedies or closed


def _sliced(limit: int, rows: int) -> list[str]:
    """Long answers, cut at a number of characters."""
    return [_text(300, 1000 + number, ".")[:limit] for number in range(rows)]


@pytest.mark.parametrize(
    ("limit", "strip"), [(1000, False), (500, False), (1000, True), (737, False)]
)
def test_answers_of_one_number_of_characters_were_sliced(
    limit: int, strip: bool, tmp_path: Path
) -> None:
    whole = [_text(random.Random(n).randint(10, 60), n, ".") for n in range(60)]
    cut = [one.rstrip() if strip else one for one in _sliced(limit, 40)]
    assert _found(tmp_path, whole + cut) == ["warning"]
    report = truetune.check([str(tmp_path / "rows.jsonl")], select=["answer-is-incomplete"])
    assert f"text[:{limit}]" in report.findings[0].message


def test_answers_of_a_limit_of_tokens_were_not_sliced(tmp_path: Path) -> None:
    whole = [_text(random.Random(n).randint(10, 95), n, ".") for n in range(60)]
    cut = [_text(100 + n % 5, n, "") for n in range(20)]
    assert _found(tmp_path, whole + cut) == ["warning"]
    report = truetune.check([str(tmp_path / "rows.jsonl")], select=["answer-is-incomplete"])
    assert "a limit on new tokens" in report.findings[0].message
