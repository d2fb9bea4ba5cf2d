"""Answers that stand at other rows: which order is named, from which row on, and that sound sets are left alone."""

from __future__ import annotations

import random

import pytest

from truetune.checks.find_answers_standing_at_other_rows import (
    DisplacedAnswers,
    find_displaced_among,
)
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


def canned(rows: int, shown: int, seed: int = 5) -> tuple[list[str], list[str]]:
    """Questions with a number each, and replies of a template that repeats it in `shown` of a hundred rows."""
    drawn = random.Random(seed)
    kinds = ("Where is parcel {}?", "I can't open file {}.", "Part {} is broken.", "Cancel {}!")
    replies = (
        "We look at {} and come back to you.",
        "Please restart, then open {} again.",
        "A new {} is on its way.",
        "It is done: {} has ended.",
    )
    questions, answers = [], []
    for _ in range(rows):
        kind, number = drawn.randrange(4), f"K-{drawn.randint(10_000, 999_999)}"
        questions.append(kinds[kind].format(number))
        answers.append(replies[kind].format(number if drawn.random() < shown / 100 else "it"))
    return questions, answers


@pytest.mark.parametrize("rows", [120, 300])
@pytest.mark.parametrize("shown", [20, 40])
@pytest.mark.parametrize("order", ["shuffled", "by text", "as strings"])
def test_numbers_tell_answers_of_templates(rows: int, shown: int, order: str) -> None:
    questions, answers = canned(rows, shown)
    places = list(range(rows))
    if order == "shuffled":
        random.Random(1).shuffle(places)
    elif order == "by text":
        places.sort(key=answers.__getitem__)
    else:
        places.sort(key=str)
    found = find(questions, [answers[place] for place in places])
    assert found is not None
    away = [row for row in found.rows if places[found.targets[row]] == row]
    assert len(away) >= 0.9 * len(found.rows)


@pytest.mark.parametrize("rows", [120, 300])
@pytest.mark.parametrize("shown", [0, 20, 40, 100])
def test_numbers_at_home_are_left_alone(rows: int, shown: int) -> None:
    assert find(*canned(rows, shown)) is None


def test_questions_both_ways_are_left_alone() -> None:
    codes = [f"F-{1000 + 13 * n}" for n in range(60)]
    questions = [f"Which filter fits {THINGS[n % 24]} {n}?" for n in range(60)]
    questions += [f"What does {code} fit?" for code in codes]
    answers = [f"It takes {code}." for code in codes]
    answers += [f"The {THINGS[n % 24]} {n}." for n in range(60)]
    assert find(questions, answers) is None


def test_sums_that_coincide_are_left_alone() -> None:
    drawn = random.Random(4)
    questions = [
        f"Add {drawn.randint(100, 900)} and {drawn.randint(100, 900)}." for _ in range(300)
    ]
    answers = [f"It is {drawn.randint(200, 1800)}." for _ in range(300)]
    assert find(questions, answers) is None


@pytest.mark.parametrize("turns", [2, 3, 5])
@pytest.mark.parametrize("form", ["I got {} for it, what of the rest?", "Is {} in euros?", "{}?"])
def test_threads_whose_next_question_quotes_a_number_are_left_alone(form: str, turns: int) -> None:
    rng = random.Random(turns)
    questions, answers = [], []
    for thread in range(150 // turns):
        number = None
        for _ in range(turns):
            asked = (
                f"How much is item {thread * 31 + 7}?" if number is None else form.format(number)
            )
            number = rng.randint(10_000, 99_999)
            questions.append(asked)
            answers.append(f"The amount for it is {number} euro in total.")
    assert find(questions, answers) is None


@pytest.mark.parametrize("start", [0, 40])
def test_answers_that_are_one_row_late_are_told_all_the_same(start: int) -> None:
    questions, answers = tickets(120)
    late = [*answers[:start], *answers[start + 1 :], answers[start]]
    displaced = find(questions, late)
    assert displaced is not None
    assert displaced.order == "1 row before"


DAYS = ("{d} {m} {y}", "{m} {d}, {y}", "{d}.{n}.{y}", "{d}. {m} {y}")
MONTHS = ("January", "March", "April", "June", "July", "October", "November", "December")


def reports(rows: int, form: str, seed: int = 9) -> tuple[list[str], list[str]]:
    """Reports that only a day tells apart: names and towns are few, and serve many rows."""
    drawn = random.Random(seed)
    questions, answers = [], []
    for _ in range(rows):
        place = drawn.randrange(len(MONTHS))
        day = form.format(
            d=drawn.randint(1, 28), m=MONTHS[place], n=place + 1, y=drawn.randint(2019, 2024)
        )
        name, town = drawn.choice(("Tasman", "Solveig", "Grietje")), drawn.choice(("Cork", "Varna"))
        questions.append(f"Vessel {name}, surveyed at {town} on {day}. The hull was examined.")
        answers.append(f"The {name} was inspected at {town} on {day}, with findings.")
    return questions, answers


@pytest.mark.parametrize("form", DAYS)
def test_days_tell_answers_that_were_sorted_by_another_key(form: str) -> None:
    questions, answers = reports(400, form)
    as_text = sorted(range(1, 401), key=str)
    displaced = find([questions[number - 1] for number in as_text], answers)
    assert displaced is not None
    assert "the questions sorted by them as text" in displaced.order
    assert find(questions, answers) is None


@pytest.mark.parametrize("seed", range(4))
def test_days_that_coincide_are_left_alone(seed: int) -> None:
    """Each side names a day of its own: they meet by chance alone."""
    questions, _ = reports(400, DAYS[0], seed)
    _, answers = reports(400, DAYS[0], seed + 100)
    assert find(questions, answers) is None
