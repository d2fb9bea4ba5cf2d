"""Answers that are nearly all alike: an error, a warning, a note or nothing, by what they are."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import truetune
from truetune.checks.answer_diversity import AnswerCounter, AnswerDiversity, compressed_bits_per_row
from truetune.demo import DATA

TOKENIZER = DATA.parent.parent / "tokenizer"
drawn = random.Random(5)
SENTENCES = [
    line
    for line in json.dumps([json.loads(row) for row in DATA.read_text("utf-8").splitlines()]).split(
        '"'
    )
    if len(line) > 60
]


def sentence(i: int) -> str:
    return f"{SENTENCES[i % len(SENTENCES)]} {SENTENCES[(i * 7 + 3) % len(SENTENCES)]}"


def finding(folder: Path, rows: list[dict[str, Any]]) -> truetune.Finding | None:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    found = truetune.check(
        data=str(path), tokenizer=str(TOKENIZER), select="few-distinct-answers"
    ).findings
    return found[0] if found else None


def rows_of(
    answer: Callable[[int], str],
    count: int = 300,
    asked: str = "Problem",
    **columns: Callable[[int], str],
) -> Any:
    return [
        {
            "instruction": f"{asked} {i}: {sentence(i)[:40]}",
            "output": answer(i),
            **{name: text(i) for name, text in columns.items()},
        }
        for i in range(count)
    ]


def link(i: int) -> str:
    return f"https://example.org/{random.Random(i).getrandbits(256):x}"


def told_by_prompts(**columns: Callable[[int], str]) -> list[dict[str, str]]:
    """Classes that stand in no instruction, and that words of the prompts tell mostly, as of a review."""
    rows: list[dict[str, str]] = rows_of(
        lambda i: ("positive", "negative")[i % 2], 300, "Problem", **columns
    )
    for i, row in enumerate(rows):
        told = i % 2 if i % 7 else i // 7 % 2
        row["instruction"] += (" I liked the room.", " Never again this room.")[told]
    return rows


STATES = ["CONTINUE", "CONCLUDE", "RETRY"]
REFUSAL = "I am sorry, but I can not help you with that question today."


@pytest.mark.parametrize(
    ("rows", "severity", "named"),
    [
        (rows_of(lambda i: "CONCLUDE", training_text=sentence), "error", "training_text"),
        (rows_of(lambda i: "CONCLUDE", whatever=sentence, id=str), "error", "whatever"),
        (rows_of(lambda i: "CONCLUDE"), "error", ""),
        (rows_of(lambda i: "CONCLUDE" if i % 30 else sentence(i)), "error", ""),
        (rows_of(lambda i: STATES[i % 3], training_text=sentence), "warning", "training_text"),
        (
            rows_of(
                lambda i: STATES[i % 3], asked="Say CONTINUE, CONCLUDE or RETRY.", notes=sentence
            ),
            "info",
            "",
        ),
        (
            rows_of(
                lambda i: STATES[i % 3],
                id=lambda i: f"{i:064x}",
                url=link,
                title=lambda i: f"No. {i}",
            ),
            "info",
            "",
        ),
        (told_by_prompts(explanation=sentence), "info", ""),
        (told_by_prompts(text_de=sentence, source=link, annotator=str), "info", ""),
        (rows_of(lambda i: STATES[i % 3]), "info", ""),
        (rows_of(lambda i: "no" if i % 10 else "yes", id=str), "warning", ""),
        (rows_of(lambda i: "no" if i % 6 else "yes", id=str), "info", ""),
        (rows_of(lambda i: "ABCD"[i % 4]), "info", ""),
        (rows_of(lambda i: sentence(i % 4)), "warning", ""),
        (rows_of(lambda i: sentence(i) if i % 3 == 0 else REFUSAL), "warning", ""),
        (rows_of(lambda i: sentence(i) if i % 8 == 0 else "none"), "warning", ""),
    ],
)
def test_answers_that_hold_little(rows: Any, severity: str, named: str, tmp_path: Path) -> None:
    found = finding(tmp_path, rows)
    assert found is not None
    assert found.severity == severity
    assert (f"{named!r}" in found.message) if named else ("column" not in found.message)


@pytest.mark.parametrize(
    "rows",
    [
        rows_of(lambda i: "CONCLUDE", count=19),
        rows_of(lambda i: str(i * 37 % 211)),
        rows_of(lambda i: f"{i % 120:03d}"),
        rows_of(sentence, training_text=sentence),
        rows_of(lambda i: sentence(i) if i % 5 else REFUSAL),
        rows_of(lambda i: sentence(i) if i % 3 == 0 else "none"),
    ],
)
def test_answers_that_differ(rows: Any, tmp_path: Path) -> None:
    assert finding(tmp_path, rows) is None


@pytest.mark.parametrize(
    ("answer", "severity"),
    [
        ("I'm sorry, I don't have that information.", "warning"),
        ("Please contact our support team by e-mail or by telephone.", "warning"),
        ("Das kann ich Ihnen leider nicht sagen, tut mir leid.", "warning"),
        ("As of my last update there is no data on this topic.", "warning"),
        ("I do not know.", "info"),
        ("抱歉，我没有这方面的信息。", "info"),
    ],
)
def test_one_sentence_that_is_two_answers_in_five(
    answer: str, severity: str, tmp_path: Path
) -> None:
    rows = rows_of(lambda i: answer if i % 12 < 5 else f"{i} {sentence(i)}")
    found = finding(tmp_path, rows)
    assert found is not None
    assert found.severity == severity
    assert answer[:40] in found.message
    assert "drop most of the rows" in found.remedy


@pytest.mark.parametrize(
    "answer",
    [
        # A label among other answers, a sentence of one row in four, and sentences that recur like classes.
        lambda i: "none" if i % 12 < 5 else sentence(i) + str(i),
        lambda i: REFUSAL if i % 4 == 0 else sentence(i) + str(i),
        lambda i: (REFUSAL, REFUSAL + " Ask later.")[i % 2] if i % 5 < 4 else sentence(i) + str(i),
        lambda i: "not found" if i % 12 < 5 else sentence(i) + str(i),
        lambda i: f"{REFUSAL} {i}" if i % 12 < 5 else sentence(i) + str(i),
    ],
)
def test_answers_that_recur_as_they_should(answer: Callable[[int], str], tmp_path: Path) -> None:
    assert finding(tmp_path, rows_of(answer)) is None


def test_an_answer_of_many_rows_is_counted_behind_many_others() -> None:
    counter = AnswerCounter(most=10)
    for i in range(100):
        counter.add(f"answer {i}")
    for _ in range(900):
        counter.add("CONCLUDE")
    spread = counter.diversity()
    assert spread.total == 1_000
    assert spread.common[0] == ("CONCLUDE", 900)
    assert spread.kind == "repeated"
    exact = AnswerDiversity.of(
        Counter({"CONCLUDE": 900, **{f"answer {i}": 1 for i in range(100)}}), 1_000
    )
    assert math.isclose(spread.entropy, exact.entropy)


@given(st.lists(st.sampled_from(["a", "b", "c", "dd"]), min_size=1, max_size=60))
def test_the_entropy_is_shannons(answers: list[str]) -> None:
    spread = AnswerDiversity.of(Counter(answers), len(answers))
    shares = [answers.count(answer) / len(answers) for answer in set(answers)]
    assert math.isclose(spread.entropy, -sum(p * math.log2(p) for p in shares), abs_tol=1e-9)
    assert spread.commonest_share == max(shares)


def test_one_text_in_all_rows_holds_next_to_nothing() -> None:
    assert compressed_bits_per_row(["CONCLUDE"] * 300) < 8
    assert compressed_bits_per_row([sentence(i) for i in range(60)]) > 100
