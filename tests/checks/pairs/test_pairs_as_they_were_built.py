"""Pairs whose rejected side is of another prompt, ties, and phrases that tell the sides: with near misses."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import truetune
from tests.checks.test_displaced_answers import tickets

REFUSALS = ("I cannot help with that.", "Sorry, no.", "Please ask your teacher about this.")


def codes(folder: Path, rows: list[dict[str, Any]], select: str) -> list[str]:
    """What a rule says of some pairs, with its severity."""
    file = folder / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    report = truetune.check(str(file), select=select)
    return [f"{one.severity} {one.message}" for one in report.findings]


def pairs_of(shift: Callable[[list[str]], list[str]], rows: int = 120) -> list[dict[str, Any]]:
    """Pairs whose rejected answers are put in another order."""
    questions, chosen = tickets(rows)
    rejected = shift([f"Perhaps later. {one}" for one in chosen])
    return [
        {"prompt": one, "chosen": good, "rejected": bad}
        for one, good, bad in zip(questions, chosen, rejected, strict=False)
    ]


def filtered(answers: list[str]) -> list[str]:
    """Some answers dropped, as a filter of this list alone does."""
    return [one for number, one in enumerate(answers) if number not in (7, 50)]


def shuffled(answers: list[str]) -> list[str]:
    return random.Random(0).sample(answers, len(answers))


@pytest.mark.parametrize(
    "shift",
    [
        filtered,
        shuffled,
        lambda answers: answers[::-1],
        lambda answers: answers[1:] + answers[:1],
        lambda answers: answers[:40] + answers[43:],
    ],
)
def test_rejected_answers_of_other_prompts(
    tmp_path: Path, shift: Callable[[list[str]], list[str]]
) -> None:
    assert len(codes(tmp_path, pairs_of(shift), "PREF026")) == 1


def test_messages_are_read_as_strings_are(tmp_path: Path) -> None:
    rows = [
        {
            "prompt": [{"role": "user", "content": row["prompt"]}],
            "chosen": [{"role": "assistant", "content": row["chosen"]}],
            "rejected": [{"role": "assistant", "content": row["rejected"]}],
        }
        for row in pairs_of(filtered)
    ]
    (message,) = codes(tmp_path, rows, "PREF026")
    assert "1 row before" in message or "2 rows before" in message


@pytest.mark.parametrize(
    "shift",
    [
        lambda answers: answers,
        lambda answers: [REFUSALS[n % 3] for n in range(len(answers))],
        lambda answers: [f"It depends on case {n}." for n in range(len(answers))],
        lambda answers: [*answers[:40], answers[41], answers[40], *answers[42:]],
        lambda answers: ["" for _ in answers],
    ],
)
def test_sound_rejected_answers(tmp_path: Path, shift: Callable[[list[str]], list[str]]) -> None:
    assert codes(tmp_path, pairs_of(shift), "PREF026") == []


def scored(number: int, **scores: Any) -> dict[str, Any]:
    """A pair with columns."""
    return {
        "prompt": f"Q {number}?",
        "chosen": f"Yes {number}.",
        "rejected": f"No {number}.",
        **scores,
    }


@pytest.mark.parametrize(
    ("scores", "severity"),
    [
        (lambda n: {"score_chosen": 7.0, "score_rejected": 7.0 - (n % 3)}, "warning"),
        (lambda n: {"chosen_rating": "4", "rejected_rating": "4" if n % 4 else "2"}, "warning"),
        (lambda n: {"margin": 0.0 if n % 5 == 0 else 1.5}, "warning"),
        (lambda n: {"chosen_rank": 1, "rejected_rank": 1 if n % 2 else 3}, "warning"),
        (lambda n: {"score_chosen": 7.0, "score_rejected": 7.0 if n % 20 == 0 else 5}, "info"),
        (lambda n: {"score_chosen": 7.0, "score_rejected": 6.9}, ""),
        (lambda n: {"score_chosen": 7.0}, ""),
        (lambda n: {"score_chosen": 7.0, "score_rejected": 7.0 if n == 0 else 5}, ""),
        (lambda n: {"length_chosen": 7, "length_rejected": 7}, ""),
        (lambda n: {}, ""),
    ],
)
def test_ties(tmp_path: Path, scores: Callable[[int], dict[str, Any]], severity: str) -> None:
    rows = [scored(n, **scores(n)) for n in range(60)]
    found = codes(tmp_path, rows, "PREF027")
    assert [one.split()[0] for one in found] == ([severity] if severity else [])


ANSWERS = [f"{one} {number}" for number, one in enumerate(tickets(60)[1])]


@pytest.mark.parametrize(
    ("chosen", "rejected", "severity"),
    [
        ("{}", "As an AI language model, {}", "warning"),
        ("{}", "{} Let me know if you need more!", "warning"),
        ("{}", "Sure! Here is {}", "warning"),
        ("Thank you for asking. {}", "{}", "info"),
        ("{} Have a nice day!", "{}", "info"),
        ("As an AI language model, {}", "As an AI language model, no: {}", ""),
        ("{}", "Well: {}", ""),
        ("{}", "I do not know the answer.", ""),
        ("yes", "no", ""),
        ("{}", "{}", ""),
    ],
)
def test_phrases(tmp_path: Path, chosen: str, rejected: str, severity: str) -> None:
    rows = [
        {"prompt": f"Q {n}?", "chosen": chosen.format(one), "rejected": rejected.format(other)}
        for n, (one, other) in enumerate(zip(ANSWERS, ANSWERS[::-1], strict=True))
    ]
    found = codes(tmp_path, rows, "PREF028")
    assert [one.split()[0] for one in found] == ([severity] if severity else [])


WORDS = "the shop opens late and its owner counts all boxes that came before noon while others wait"


def essay(seed: int, words: int) -> str:
    """Sentences of common words."""
    draw = random.Random(seed)
    return " ".join(
        f"The {' '.join(draw.choices(WORDS.split(), k=9))} boxes." for _ in range(words // 10)
    )


def cut_pairs(cut: Callable[[str, int], str]) -> list[dict[str, Any]]:
    """Pairs of which half have a chosen answer that is cut."""
    return [
        {
            "prompt": f"What of {number}?",
            "chosen": cut(essay(number, 300), number) if number % 2 else essay(number, 40),
            "rejected": essay(number + 1000, 60),
        }
        for number in range(120)
    ]


@pytest.mark.parametrize("limit", [400, 777, 1000])
def test_a_slice_of_the_chosen_answers_is_no_exchange(limit: int, tmp_path: Path) -> None:
    rows = cut_pairs(lambda text, number: text[:limit])
    assert codes(tmp_path, rows, "preference-pairs-swapped") == []


def test_chosen_answers_that_end_anywhere_look_exchanged(tmp_path: Path) -> None:
    rows = cut_pairs(lambda text, number: text[: 900 + 13 * (number % 17)])
    (message,) = codes(tmp_path, rows, "preference-pairs-swapped")
    assert "only the chosen side is cut off" in message


@pytest.mark.parametrize(
    ("prompt", "severity"),
    [
        ("Be concise. {}", "info"),
        ("Answer in one sentence: {}", "info"),
        ("Please answer: {}", "warning"),
        ("Explain in detail: {}", "warning"),
    ],
)
def test_prompts_that_ask_for_short_answers(tmp_path: Path, prompt: str, severity: str) -> None:
    """A length that the prompts ask for is no sign that the sides were exchanged."""
    rows = [
        {
            "prompt": prompt.format(question),
            "chosen": f"No. {number}",
            "rejected": f"Perhaps, and there is much to say about {number} at length.",
        }
        for number, question in enumerate(tickets(60)[0])
    ]
    (message,) = codes(tmp_path, rows, "PREF003")
    assert message.startswith(f"{severity} the shorter answer")
