"""Answers that stand at other rows: which order is named, from which row on, and that sound sets are left alone."""

from __future__ import annotations

import random

import pytest

from truetune.checks.find_displaced_answers import DisplacedAnswers, find_displaced_among
from truetune.data.conversation import Origin

THINGS = (  # noqa: SIM905
    "printer laptop router invoice headset camera projector scanner keyboard battery monitor license calendar mailbox"
    " backup server tablet badge coffee elevator parking heating window chair desk"
).split()
TOWNS = (  # noqa: SIM905
    "Hamburg Lyon Porto Graz Turin Bergen Malmo Ghent Brno Split Basel Utrecht Cork Leeds Gdansk Tartu Varna Patras"
    " Cadiz Nantes"
).split()
NAMES = (  # noqa: SIM905
    "Meyer Okafor Tanaka Silva Novak Larsen Dubois Rossi Kowalski Haddad Nguyen Petrov Costa Jansen Murphy Weber"
    " Schmidt Lopez Garcia Kim"
).split()


def tickets(rows: int, seed: int = 3) -> tuple[list[str], list[str]]:
    """Mails, and replies that name what they are about."""
    drawn = random.Random(seed)
    questions, answers = [], []
    for _ in range(rows):
        thing, town, name = drawn.choice(THINGS), drawn.choice(TOWNS), drawn.choice(NAMES)
        number = drawn.randint(10_000, 99_999)
        questions.append(f"Ticket {number}: the {thing} in our {town} office fails. {name}")
        answers.append(f"Dear {name}, we come to {town} for the {thing}, case {number}.")
    return questions, answers


def find(questions: list[str], answers: list[str]) -> DisplacedAnswers | None:
    """What is said of some rows."""
    pairs = zip(questions, answers, strict=True)
    return find_displaced_among(
        [(one, other, Origin("rows.jsonl", n + 1, n)) for n, (one, other) in enumerate(pairs)]
    )


@pytest.mark.parametrize("rows", [30, 60, 200])
@pytest.mark.parametrize(("start", "by"), [(14, 1), (14, -1), (9, 3)])
def test_a_shift_from_some_row_on(rows: int, start: int, by: int) -> None:
    questions, answers = tickets(rows)
    moved = answers[start:]
    moved = moved[by:] + moved[:by]
    found = find(questions, answers[:start] + moved)
    assert found is not None
    assert found.offset == -by
    assert abs(found.first - start) <= abs(by) + 1


@pytest.mark.parametrize("processes", [2, 4, 7])
def test_parts_of_several_processes(processes: int) -> None:
    questions, answers = tickets(112)
    order = [row for rank in range(processes) for row in range(rank, 112, processes)]
    found = find(questions, [answers[row] for row in order])
    assert found is not None
    assert f"{processes} processes" in found.order


@pytest.mark.parametrize("rows", [60, 1_500])
def test_the_reverse_order_and_rows_exchanged_two_by_two(rows: int) -> None:
    questions, answers = tickets(rows)
    backwards = find(questions, answers[::-1])
    assert backwards is not None
    assert backwards.order == "in reverse order"
    found = find(questions, [answers[row ^ 1] for row in range(rows)])
    assert found is not None
    assert found.order == "at the other row of each two"


def test_a_shuffled_part_and_rows_exchanged_among_sound_ones() -> None:
    questions, answers = tickets(200)
    drawn = random.Random(1)
    half = answers[100:]
    drawn.shuffle(half)
    found = find(questions, answers[:100] + half)
    assert found is not None
    assert 95 <= found.first <= 105
    some = drawn.sample(range(200), 40)
    exchanged = list(answers)
    for row, other in zip(some, some[1:] + some[:1], strict=True):
        exchanged[row] = answers[other]
    found = find(questions, exchanged)
    assert found is not None
    assert found.is_among_sound_rows
    assert set(found.rows) <= set(some)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "form", ["own", "nothing shared", "name of anybody", "one topic a block", "talk"]
)
def test_sound_sets_are_left_alone(form: str, seed: int) -> None:
    questions, answers = tickets(80, seed)
    drawn = random.Random(seed)
    if form == "nothing shared":
        answers = [f"Class {drawn.choice('ABC')} it is" for _ in answers]
    elif form == "name of anybody":
        answers = [f"Signed by {drawn.choice(NAMES)} of {drawn.choice(TOWNS)}" for _ in answers]
    elif form == "one topic a block":
        topics = [f"{drawn.choice(THINGS)}{block}" for block in range(16)]
        questions = [f"What of the {topics[row // 5]}, part {row % 5}?" for row in range(80)]
        answers = [f"The {topics[row // 5]} is sound in all its parts." for row in range(80)]
    elif form == "talk":
        questions = [questions[0], *(f"{answers[n - 1]} And {questions[n]}" for n in range(1, 80))]
    assert find(questions, answers) is None
