"""Predictions that a limit cut, labels that were exchanged, and references that are bare values."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from truetune.evaluation.score_predictions import ScoreReport, score

STEPS = (
    "First we count the boxes that came in on Monday.",
    "Then we add those that were still on the shelf.",
    "After that we take away what was sold in the shop.",
    "Each of the remaining boxes holds a dozen eggs.",
    "So we multiply the number of boxes by twelve.",
)
CUT, EXCHANGED = "answers-are-cut-off", "labels-are-exchanged"


def solutions(rows: int, limit: int | None) -> list[tuple[str, str]]:
    """(answer, gold) of worked solutions; those longer than `limit` characters are cut at a space."""
    made = []
    for number in range(rows):
        drawn = random.Random(number)
        steps = " ".join(drawn.choices(STEPS, k=drawn.randint(3, 9)))
        whole = f"{steps}\n\n#### {number}"
        is_cut = limit is not None and len(whole) > limit
        made.append((whole[:limit].rpartition(" ")[0] if is_cut else whole, str(number)))
    return made


def found(pairs: Sequence[tuple[str, str]], **options: Any) -> set[str]:
    """The rules that speak on answers beside their references."""
    return {finding.rule for finding in scored(pairs, **options).findings}


def scored(pairs: Sequence[tuple[str, str]], **options: Any) -> ScoreReport:
    """The report on answers beside their references."""
    answers, golds = [answer for answer, _ in pairs], [gold for _, gold in pairs]
    prompts = [f"Question {number}: how many?" for number in range(len(pairs))]
    return score(answers, prompts=prompts, references=golds, **options)


def test_answers_that_end_at_one_length_in_mid_sentence_were_cut() -> None:
    assert CUT in found(solutions(80, 180))


def test_the_limit_explains_what_the_parser_does_not_read() -> None:
    rules = found(solutions(80, 180), parser=r"regex:####\s*(\d+)")
    assert CUT in rules
    assert not rules & {"answers-do-not-parse", "parser-misses-gold-answers"}


@pytest.mark.parametrize(
    "pairs",
    [
        solutions(80, None),
        [(text.replace("####", "The answer is") + ".", gold) for text, gold in solutions(80, None)],
        [("\n".join(f"- {step[:-1]}" for step in STEPS[: 2 + n % 3]), str(n)) for n in range(40)],
        [(" ".join(STEPS[: 1 + n % 5])[:-1], str(n)) for n in range(40)],
        [("Label " + "abc"[n % 3], "Label " + "abc"[n % 3]) for n in range(40)],
    ],
    ids=["whole", "sentences", "lists", "no-full-stops", "labels"],
)
def test_whole_answers_are_not_said_to_be_cut(pairs: list[tuple[str, str]]) -> None:
    assert CUT not in found(pairs)


def test_answers_like_their_references_are_not_said_to_be_cut() -> None:
    texts = [text for text, _ in solutions(60, 150)]
    assert CUT not in found([(text, text) for text in texts])


def test_a_model_that_runs_on_behind_its_answer_was_not_cut_too_early() -> None:
    pairs = [
        (
            f"It is {n}. User: and what of the other box that we have " + "that we saw " * 9,
            f"It is {n}.",
        )
        for n in range(40)
    ]
    assert CUT not in found(pairs, stopped=[False] * 40)


PARAGRAPHS = (
    "**What is given.** Farid has 38 cushions, and 7 deliveries bring 12 each.",
    "**Step 1: the deliveries.** 7 deliveries of 12 cushions are 84 cushions.",
    "It is worth a look whether this makes sense: 84 is more than 38, as it should be.",
    "Another way to see it is that each day brings 12, and that seven days bring 84.",
    "**Step 2: the customers.** 5 customers take 2 cushions each, which makes 10 cushions.",
    "Nothing is said of cushions that come back, and so none of them is counted here.",
    "**Step 3: the money.** The rest is sold at 5 euros apiece on the next day.",
)
LONG = "answers-are-too-long"


def worked(rows: int, mark: str, limit: int, at_space: bool = False) -> list[tuple[str, str]]:
    """(answer, value) of paragraphs in Markdown with a marked result, cut at `limit` characters wherever that is."""
    made = []
    for number in range(rows):
        drawn = random.Random(number)
        steps = [text for text in PARAGRAPHS for _ in range(drawn.choice((1, 1, 2)))]
        whole = "\n\n".join(steps) + f"\n\n{mark.format(number)}"
        cut = whole[: limit + drawn.randint(-30, 30)] if len(whole) > limit + 30 else whole
        made.append((cut.rpartition(" ")[0] if at_space and cut != whole else cut, str(number)))
    return made


@pytest.mark.parametrize("at_space", [False, True])
@pytest.mark.parametrize("mark", ["#### {}", "\\boxed{{{}}}", "<answer>{}</answer>"])
def test_cut_steps_in_markdown_are_no_answers_that_never_stop(mark: str, at_space: bool) -> None:
    rules = found(worked(120, mark, 690, at_space))
    assert CUT in rules
    assert LONG not in rules


@pytest.mark.parametrize("mark", ["#### {}", "\\boxed{{{}}}"])
def test_steps_that_come_to_their_result_are_neither_cut_nor_too_long(mark: str) -> None:
    assert not {CUT, LONG} & found(worked(120, mark, 5000))


def test_answers_that_run_on_behind_their_result_were_not_cut() -> None:
    pairs = [
        (f"{text}\n\nThe next task is about boats. " + "We count the boats again and " * 40, value)
        for text, value in worked(60, "#### {}", 5000)
    ]
    assert CUT not in found(pairs)


def test_short_answers_without_a_mark_were_not_cut() -> None:
    pairs = [
        (text, value) if n % 2 else ("It is not known how many there were on that day.", value)
        for n, (text, value) in enumerate(worked(60, "#### {}", 5000))
    ]
    assert CUT not in found(pairs)


def test_a_line_in_bold_is_a_heading_and_no_cut() -> None:
    pairs = [(f"{text}\n\n**Summary of the day**", "none") for text, _ in solutions(60, None)]
    assert CUT not in found(pairs)


def test_reasoning_is_no_length_of_the_reply() -> None:
    thought = "Okay, the user asks about iron tablets, and I should weigh that again. " * 30
    reply = "Leave two hours between two doses of iron {}."
    pairs = [(f"<think>{thought}</think>\n{reply.format(n)}", reply.format(n)) for n in range(40)]
    assert LONG not in found(pairs, stopped=[True] * 40)


def test_long_answers_that_stopped_by_themselves_learned_their_stop_token() -> None:
    drawn = random.Random(3)
    words = [word for text in (*STEPS, *PARAGRAPHS) for word in text.split()]
    pairs = [
        (" ".join(drawn.choices(words, k=260)) + ".", f"Nothing to say {n}.") for n in range(30)
    ]
    (stopped,) = [f for f in scored(pairs, stopped=[True] * 30).findings if f.rule == LONG]
    (unknown,) = [f for f in scored(pairs).findings if f.rule == LONG]
    assert "stopped by themselves" in stopped.remedy
    assert "stop token of each answer has a label" in unknown.remedy


def labelled(pairs: Sequence[tuple[str, str]], rows: int, wrong: int = 0) -> list[tuple[str, str]]:
    """(answer, reference) of rows over such pairs, of which `wrong` answer with the first label."""
    drawn = random.Random(7)
    made = [drawn.choice(pairs) for _ in range(rows)]
    return [
        (pairs[0][0], want) if n < wrong else (said, want) for n, (said, want) in enumerate(made)
    ]


@pytest.mark.parametrize(
    ("pairs", "is_found"),
    [
        (labelled([("yes", "no"), ("no", "yes")], 90, 8), True),
        (labelled([("Yes, it is.", "no"), ("No, it is not.", "yes")], 90), True),
        (labelled([("bug", "feature"), ("feature", "bug"), ("other", "other")], 120, 9), True),
        (labelled([("yes", "yes"), ("no", "no")], 90, 20), False),
        (labelled([("yes", "no"), ("yes", "yes"), ("no", "no"), ("no", "yes")], 200), False),
        (labelled([("yes", "no"), ("yes", "yes")], 90), False),
        (labelled([("yes", "no"), ("no", "yes")], 20), False),
    ],
    ids=["two", "sentences", "two-of-three", "right", "guessed", "one-answer", "few"],
)
def test_exchanged_labels(pairs: list[tuple[str, str]], is_found: bool) -> None:
    assert (EXCHANGED in found(pairs)) == is_found


def test_references_that_are_values_need_no_mark() -> None:
    pairs = [(f"Some steps.\n#### {n if n % 3 else n + 1}", str(n)) for n in range(30)]
    report = scored(pairs, parser=r"regex:####\s*(\d+)")
    assert "parser-misses-gold-answers" not in {finding.rule for finding in report.findings}
    assert sum(bool(one.scores.agrees) for one in report.looks[-1].samples) == 20


def test_a_parser_that_reads_neither_answers_nor_references_is_still_wrong() -> None:
    pairs = [(f"The answer is {n}.", str(n)) for n in range(30)]
    assert "parser-misses-gold-answers" in found(pairs, parser=r"regex:####\s*(\d+)")


def test_stop_tokens_and_missing_references_are_noted() -> None:
    ended = scored([(f"City {n}<|im_end|>", f"City {n}") for n in range(20)])
    assert not any("no reference" in note for note in ended.notes)
    partly = scored([(f"City {n}", f"City {n}" if n % 2 else "") for n in range(20)])
    assert any("10 of 20 rows have no reference" in note for note in partly.notes)
