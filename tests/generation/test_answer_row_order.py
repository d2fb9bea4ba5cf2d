"""Answers that belong to other rows, and what looks like them and is none."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence

import pytest

from tests.parts import data
from truetune.generation.answer_orders_after_gather import gathered_orders
from truetune.generation.find_answers_beside_wrong_rows import RowOrder, find_row_order

LABELS = ("positive", "negative", "neutral")


def rows(count: int) -> tuple[list[str], list[str]]:
    """(prompts, references) of public instructions."""
    made = json.loads(data("llamafactory/alpaca_en_demo.json").read_text(encoding="utf-8"))[:count]
    return [row["instruction"] + row["input"] for row in made], [row["output"] for row in made]


def imitated(text: str, share: float, draw: random.Random) -> str:
    """A text with so many of its words exchanged for others, as a model's answer has them."""
    return " ".join(
        draw.choice(("the", "some", "new", "used", "kind")) if draw.random() < share else word
        for word in text.split()
    )


def order_of(permutation: Sequence[int], share: float = 0.5, count: int = 120) -> RowOrder | None:
    prompts, references = rows(count)
    draw = random.Random(0)
    answers = [imitated(text, share, draw) for text in references]
    return find_row_order([answers[row] for row in permutation], references, prompts)


def test_answers_in_place_are_silent() -> None:
    for share in (0.0, 0.3, 0.5, 0.7, 0.9):
        assert order_of(range(120), share) is None


@pytest.mark.parametrize(
    ("permute", "named"),
    [
        (lambda n, prompts: [(row + 1) % n for row in range(n)], "1 row too early"),
        (lambda n, prompts: [(row - 3) % n for row in range(n)], "3 rows too late"),
        (lambda n, prompts: list(range(n))[::-1], "in reverse order"),
        (lambda n, prompts: sorted(range(n), key=lambda row: len(prompts[row])), "sorted by the length of the prompt"),
        (lambda n, prompts: [r for p in range(4) for r in range(p, n, 4)], "as 4 processes gave them"),
        (lambda n, prompts: random.Random(3).sample(range(n), n), ""),
        (lambda n, prompts: [r if r < 80 else (r + 1 if r + 1 < n else 80) for r in range(n)],
         "1 row too early, from the 81st row on"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_lost_orders_are_named(
    permute: Callable[[int, list[str]], list[int]], named: str, share: float
) -> None:
    found = order_of(permute(120, rows(120)[0]), share)
    assert found is not None
    assert found.order == named


def test_labels_by_the_orders_that_scripts_lose() -> None:
    draw = random.Random(1)
    prompts, _ = rows(120)
    references = [draw.choice(LABELS) for _ in prompts]
    said = [label if draw.random() < 0.9 else draw.choice(LABELS) for label in references]
    by_length = sorted(range(120), key=lambda row: len(prompts[row]))
    found = find_row_order([said[row] for row in by_length], references, prompts)
    assert found is not None
    assert found.order == "sorted by the length of the prompt"
    assert find_row_order(said, references, prompts) is None
    assert find_row_order([draw.choice(LABELS) for _ in said], references, prompts) is None


def test_exchanged_labels_are_no_lost_order() -> None:
    exchanged = {"positive": "negative", "negative": "positive", "neutral": "neutral"}
    draw = random.Random(2)
    mixed = [draw.choice(LABELS) for _ in range(120)]
    for references in (mixed, sorted(mixed), list(LABELS[:2]) * 60):
        answers = [exchanged[label] for label in references]
        assert find_row_order(answers, references, [""] * 120) is None


def test_guesses_among_the_references_are_no_lost_order() -> None:
    draw = random.Random(4)
    names = sorted({word for text in rows(60)[1] for word in text.split() if word.isalpha()})[:80]
    for right in (0.0, 0.3, 0.6):
        answers = [name if draw.random() < right else draw.choice(names) for name in names]
        assert find_row_order(answers, names, [""] * len(names)) is None


def test_the_last_value_of_a_series_is_no_lost_order() -> None:
    """Persistence says the reference of the row before, which stands in the prompt."""
    series = [str(1000 + 7 * at % 313) for at in range(60)]
    last = ["998", *series[:-1]]
    assert find_row_order(last, series, [f"The last value is {value}." for value in last]) is None
    assert find_row_order(last, series, [""] * 60) is not None


def test_small_numbers_and_one_answer_to_all_tell_no_row() -> None:
    numbers = [str(at) for at in range(60)]
    assert find_row_order([str(at + 1) for at in range(60)], numbers, [""] * 60) is None
    _, references = rows(40)
    assert find_row_order([references[0]] * 40, references, [""] * 40) is None


def test_orders_of_several_processes() -> None:
    dealt, filled, blocks = gathered_orders(5, 2)
    assert (dealt, filled, blocks) == ([0, 2, 4, 1, 3], [0, 2, 4, 1, 3], [0, 3, 1, 4, 2])
    # Four processes make two rounds of five rows: the last round begins again with row 0.
    assert gathered_orders(5, 4)[1] == [0, 4, 1, 0, 2]
