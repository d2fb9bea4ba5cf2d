"""Which text of many examples is shared, and which is a phrase of their trade."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from truetune.checks.boilerplate_tokens import (
    BYTES_IN_A_ROW,
    ExampleTokens,
    find_boilerplate_tokens,
)

WHO = ["The supplier shall", "Either party may", "The customer shall", "Each affiliate shall"]
WHAT = [
    "return or destroy all of the materials received",
    "keep complete and accurate records of the work",
    "maintain insurance cover for the whole of the term",
    "permit an audit of its premises on reasonable notice",
    "remedy any defect without undue delay and at its cost",
    "suspend the performance of the services in question",
]
WHEN = ["within {} days", "for {} months", "as Annex {} says", "unless Schedule {} says otherwise"]
SYSTEM = "You extract the key terms of contracts. Answer with JSON only."


def contract(draw: random.Random) -> str:
    pairs = list(itertools.product(WHO, WHAT, WHEN))
    clauses = [draw.choice(pairs) for _ in range(60)]
    return " ".join(
        f"{who} {what} {when.format(draw.randint(2, 99))}." for who, what, when in clauses
    )


def words(draw: random.Random, count: int) -> str:
    return " ".join("".join(draw.choices("abcdefghij", k=6)) for _ in range(count))


def shared_share(texts: list[str]) -> float:
    examples = []
    for text in texts:
        ids = np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32)
        everything = np.ones(len(ids), dtype=np.bool_)
        examples.append(ExampleTokens(ids, everything, everything))
    found = find_boilerplate_tokens(examples, BYTES_IN_A_ROW)
    return found.shared / found.tokens


def test_phrases_in_any_order_are_no_shared_text() -> None:
    draw = random.Random(5)
    assert shared_share([f"{SYSTEM} {contract(draw)}" for _ in range(60)]) < 0.25


TEMPLATES = {
    "before": "{system} {own}",
    "behind": "{own} {system}",
    "around": "{system} {own} Write the answer as JSON, with the keys party, date and amount. {other}",
    "in two parts": "Below is an instruction that describes a task: {own} ### Write a response that fits: {other}",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_shared_wherever_it_stands(name: str) -> None:
    draw = random.Random(7)
    template = TEMPLATES[name]
    fixed = len(template.format(system=SYSTEM, own="", other="").strip())
    texts = [
        template.format(system=SYSTEM, own=words(draw, 12), other=words(draw, 6)) for _ in range(60)
    ]
    wanted = fixed / (sum(map(len, texts)) / len(texts))
    assert shared_share(texts) == pytest.approx(wanted, abs=0.08)


def test_a_long_passage_counts_between_phrases_of_any_order() -> None:
    draw = random.Random(3)
    passage = " ".join([SYSTEM, "Never guess: leave a key out where the contract is silent."] * 2)
    texts = [f"{contract(draw)} {passage} {contract(draw)}" for _ in range(40)]
    assert shared_share(texts) == pytest.approx(len(passage) / (sum(map(len, texts)) / 40), abs=0.1)
