"""Tests an answer parser on answers whose reading is known, before it judges a model.

It reads gold answers, gold answers of other rows, texts that say nothing, questions, and golds in other wordings; a
parser that scores with wrong or empty answers, or misses right ones, gives figures that mean nothing. No model is
needed. The trade-off: what a gold's final answer is, is found by its marks (a box, `####`, "the answer is"), and where
most golds have none, less is known.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from itertools import combinations
from typing import Any, NamedTuple

from truetune.generation.answer_parsers_named_by_user import (
    READING_TIMEOUT_S,
    Parser,
    are_readings_equal_and_not_none,
    parse_answer_behind_reasoning,
    try_parse,
)
from truetune.generation.final_answers import (
    FinalAnswer,
    answer_phrasings,
    find_final_answer,
    holds_final_answer,
    number_spellings,
    parsed_answer_as_number_or_letter,
    value_of_bare_text,
)
from truetune.generation.parser_selftest_results import ParserReading, ParserSelftest

# Chosen, not measured: a fault of 1 % of the golds shows in five of 500. 200 golds have 19,900 pairs, a second for a
# slow comparison. Of 24 golds each wording is read a few hundred times, which is the most costly part.
MAX_GOLDS, MAX_PAIRED_GOLDS, MAX_WRAPPED_GOLDS = 500, 200, 24
"""Golds that are read, compared with each other, and wrapped otherwise; at most"""
# Chosen, not measured: at a half, the share that shuffled golds should score would be guessed from the easier half.
MIN_KNOWN_SHARE = 0.9
"""Share of the golds whose final answer must be marked, for chance to be known"""
# Chosen, not measured: single golds are misread for their own content; a wording that a parser can't read fails for
# nearly all of them.
MAX_MISREAD_SHARE = 0.3
"""Share of the golds that a wrapping must be misread for, to count"""
BLANK_TEXTS = ("", " \n")
# What models say instead of an answer, and marks of an answer with nothing behind them.
EMPTY_PHRASES = (
    "I don't know.", "Sorry, I can't help with that.", "A good question!", "The answer is", "Answer:", "####",
    "\\boxed{}", "N/A",
)  # fmt: skip
"""Texts that say nothing"""
# Chosen, not measured: an answer of 1,000 tokens that runs on. A regular expression that backtracks needs minutes for
# it, a sound one microseconds.
LONG_TEXT_CHARACTERS = 3000
"""Characters of the texts that a parser is timed on"""
# Chosen, not measured: of fewer questions half may score by chance.
MIN_QUESTIONS = 8
"""Questions that are read as answers, at least"""
NOTHING = "nothing"
"""What a reader is shown where a parser reads nothing"""
MAX_SHOWN_CHARACTERS = 400
"""Characters of a text that are kept"""


class _TimedParser:
    """A parser that remembers how long it took, the last time and at most."""

    def __init__(self, parse: Parser, seconds: float) -> None:
        self.parse, self.seconds = parse, seconds
        self.last = self.slowest = 0.0

    def read(self, text: str) -> tuple[Any, str]:
        """(what it reads, the same as text for a reader). An exception of the parser is a reading of nothing."""
        started = time.perf_counter()
        try:
            value = parse_answer_behind_reasoning(self.parse, text, self.seconds)
        except Exception as error:
            value, as_text = (
                None,
                f"{type(error).__name__}: {error}".splitlines()[0][:MAX_SHOWN_CHARACTERS],
            )
        else:
            as_text = NOTHING if value is None else _safe_repr_of_reading(value)
        self.last = time.perf_counter() - started
        self.slowest = max(self.slowest, self.last)
        return value, as_text


class _WrappingOutcome(NamedTuple):
    """What a parser made of one gold in another wording."""

    reading: ParserReading
    is_right: bool
    is_misread: bool


def try_parser(
    parse: Parser,
    golds: Sequence[str],
    *,
    name: str,
    questions: Sequence[str] = (),
    seconds: float = READING_TIMEOUT_S,
) -> ParserSelftest:
    """Try a parser on gold answers. Never raises what the parser raises.

    Args:
        parse: the parser.
        golds: `Prompt.reference` of each row; the first 500 are taken.
        name: of the parser.
        questions: of the golds; they are read as answers too.
        seconds: that a reading may take.
    """
    # In order, and not drawn: the same file gives the same verdict.
    golds = golds[:MAX_GOLDS]
    timed = _TimedParser(parse, seconds)
    # First of all: each of the thousands of readings below could take as long.
    slow = list(_find_slow_text(timed, golds))
    if slow:
        return ParserSelftest(
            name, len(golds), 0, None, None, 0.0, timed.slowest, gave_up=True, shaky=tuple(slow)
        )
    readings = [timed.read(gold) for gold in golds]
    values = [value for value, _ in readings]
    of_empty_text = timed.read("")[0]
    finals = [find_final_answer(gold) for gold in golds]
    missed = list(_find_missed_golds(golds, readings, finals, of_empty_text))
    shuffled, chance, alike = _score_shuffled_golds(golds, values, finals)
    nothing = list(_try_texts_that_say_nothing(timed, golds, values))
    nothing += _find_question_scoring_as_its_answer(timed, questions, values, shuffled or 0.0)
    unstable = list(_find_unstable_readings(timed, golds, readings))
    wrapped = _choose_golds_to_reword(finals, [*missed, *unstable])
    misread, forms = _try_reworded_golds(timed, golds, values, finals, wrapped)
    return ParserSelftest(
        name=name,
        golds=len(golds),
        read=len(golds) - len(missed),
        shuffled=shuffled,
        chance=chance,
        empty=max(_share_of_golds_scored(timed.read(text)[0], values) for text in BLANK_TEXTS),
        slowest=timed.slowest,
        values=len(_distinct_readings(values)),
        different=len(set(golds)),
        wordy=any(final is not None and final.kind == "word" for final in finals),
        missed=tuple(missed),
        misread=tuple(misread),
        alike=tuple(alike),
        nothing=tuple(nothing),
        shaky=tuple(unstable),
        forms=tuple(forms),
    )


def _choose_golds_to_reword(
    finals: Sequence[FinalAnswer | None], faulty: Sequence[ParserReading]
) -> list[int]:
    """The golds to try in other wordings: those that are read as they stand, and whose final answer is known."""
    faulty_rows = {reading.row for reading in faulty}
    right = [row for row, final in enumerate(finals) if final and row not in faulty_rows]
    # Where most golds are misread as they stand, other wordings of them would say nothing new.
    return right[:MAX_WRAPPED_GOLDS] if len(right) >= len(finals) / 2 else []


def add_model_answers(
    selftest: ParserSelftest, parse: Parser, golds: Sequence[str], answers: Sequence[str]
) -> ParserSelftest:
    """The self-test, with what the parser makes of a model's answers to the same rows.

    Args:
        selftest: what the parser made of golds.
        parse: the parser.
        golds: the reference of each answer.
        answers: of the model.
    """
    unread = [
        ParserReading(
            "an answer that holds the gold one",
            answer[:MAX_SHOWN_CHARACTERS],
            gold[:MAX_SHOWN_CHARACTERS],
            "nothing",
            row,
        )
        for row, (gold, answer) in enumerate(zip(golds, answers, strict=True))
        if try_parse(parse, answer) is None and holds_final_answer(answer, gold)
    ]
    missed = selftest.missed
    if any(
        _reads_bare_gold_in_answer(parse, gold, answer)
        for gold, answer in zip(golds, answers, strict=True)
    ):
        # The parser is for the answers' form, and the references are values already: nothing is missed in them.
        missed = tuple(
            one for one in missed if value_of_bare_text(one.text) is None or one.read != NOTHING
        )
    read_golds = selftest.read + len(selftest.missed) - len(missed)
    return replace(
        selftest, unread=tuple(unread), answers=len(answers), missed=missed, read=read_golds
    )


def _reads_bare_gold_in_answer(parse: Parser, gold: str, answer: str) -> bool:
    """Does a parser that reads nothing of a bare gold value read that value in the answer?"""
    value = value_of_bare_text(gold)
    return (
        value is not None
        and try_parse(parse, gold) is None
        and parsed_answer_as_number_or_letter(try_parse(parse, answer)) == value
    )


def _find_slow_text(timed: _TimedParser, golds: Sequence[str]) -> Iterator[ParserReading]:
    """The first text that takes too long, twice; golds and repetitions, as answers are that run on."""
    longest = max(golds, key=len, default="")
    # Once without a clock: imports and compiled patterns of a first call are no slowness.
    with suppress(Exception):
        parse_answer_behind_reasoning(timed.parse, longest, 10 * timed.seconds)
    # Repetitions that end otherwise are what makes nested quantifiers backtrack.
    marks = ("a", "1", " ", "\n", "a ", "1,", "{", "```\n", "the answer is ")
    starts = [f"{mark * 200}!" for mark in marks]
    repeated = (
        text * (LONG_TEXT_CHARACTERS // len(text)) + "!"
        for text in (longest[:LONG_TEXT_CHARACTERS], *starts)
        if text
    )
    for text in (*golds[:3], *starts, *repeated):
        as_text = timed.read(text)[1]
        if timed.last <= timed.seconds:
            continue
        # A second time: a busy machine may have been the cause of the first.
        timed.read(text)
        if timed.last > timed.seconds:
            yield ParserReading(
                f"a text of {len(text):,} characters", text[:60], "an end within a second", as_text
            )
            return


def _find_missed_golds(
    golds: Sequence[str],
    readings: Sequence[tuple[Any, str]],
    finals: Sequence[FinalAnswer | None],
    of_empty_text: Any,
) -> Iterator[ParserReading]:
    """Golds that are not read, not read equal to themselves, read as an empty answer is, or as another value.

    Args:
        golds: the texts.
        readings: (value, text for a reader) of each.
        finals: the final answer of each, where its marks tell one.
        of_empty_text: what the parser reads of an empty text.
    """
    for row, (gold, (value, as_text), final) in enumerate(
        zip(golds, readings, finals, strict=True)
    ):
        expected = _final_text(final) or "something"
        # NaN is not equal to itself: a scorer that compares would never count it as right.
        if not are_readings_equal_and_not_none(value, value):
            what = "a gold answer"
        elif are_readings_equal_and_not_none(value, of_empty_text):
            what = "a gold answer, read as an empty one is"
        elif final is not None and _is_another_value(value, final):
            what = "a gold answer, read as another value than its final one"
        else:
            continue
        # The end of the gold, where its final answer stands.
        yield ParserReading(what, gold[-MAX_SHOWN_CHARACTERS:], expected, as_text, row)


def _is_another_value(value: Any, final: FinalAnswer) -> bool:
    """Is a reading of the final answer's kind, and not its value? A parser may read more than the final answer."""
    reading = parsed_answer_as_number_or_letter(value)
    return (
        reading is not None and reading[0] == final.kind and not _is_final_value(reading[1], final)
    )


def _is_final_value(value: str, final: FinalAnswer) -> bool:
    """Is this the final answer, or as a share what it says in per cent?"""
    return value == final.value or (
        "%" in final.text
        and final.kind == "number"
        and Decimal(value) * 100 == Decimal(final.value)
    )


def _score_shuffled_golds(
    golds: Sequence[str], values: Sequence[Any], finals: Sequence[FinalAnswer | None]
) -> tuple[float | None, float | None, list[ParserReading]]:
    """(what shuffled golds score, what they should, golds that only the parser takes for the same).

    Both are shares of all pairs of two golds, which is the mean over all shuffles without fixed points.
    """
    rows, is_known = _comparable_golds_and_whether_known(finals)
    pairs = list(combinations(rows[:MAX_PAIRED_GOLDS], 2))
    equal = [(a, b) for a, b in pairs if are_readings_equal_and_not_none(values[a], values[b])]
    if not pairs or not is_known:
        return (len(equal) / len(pairs) if pairs else None), None, []
    # Many golds may be truly the same ("yes"): only what the parser adds to that is its fault.
    keys = [_final_key(final) for final in finals]
    same_finals = sum(keys[a] == keys[b] for a, b in pairs)
    alike = [(a, b) for a, b in equal if keys[a] != keys[b]]
    confused = _golds_taken_for_others(golds, values, finals, alike)
    return len(equal) / len(pairs), same_finals / len(pairs), confused


def _comparable_golds_and_whether_known(
    finals: Sequence[FinalAnswer | None],
) -> tuple[list[int], bool]:
    """The numbers of the golds to compare, and whether the final answer of each of them is known."""
    # Two JSON objects are alike in many ways, and none of them is "the same answer".
    known = [row for row, final in enumerate(finals) if final is not None and final.kind != "json"]
    if len(known) >= MIN_KNOWN_SHARE * len(finals):
        return known, True
    # The easier golds alone would say too little: all are compared, and what they should score is not known.
    return list(range(len(finals))), False


def _golds_taken_for_others(
    golds: Sequence[str],
    values: Sequence[Any],
    finals: Sequence[FinalAnswer | None],
    pairs: Sequence[tuple[int, int]],
) -> list[ParserReading]:
    """Of each pair of golds the second, with the first one that the parser takes it for; by row."""
    # Backwards, so that the first gold of several stays.
    readings = {
        b: ParserReading(
            f"a gold answer, read as gold {a + 1} is",
            golds[b][-MAX_SHOWN_CHARACTERS:],
            _final_text(finals[b]),
            _safe_repr_of_reading(values[b]),
            b,
        )
        for a, b in reversed(pairs)
    }
    return [readings[row] for row in sorted(readings)]


def _try_texts_that_say_nothing(
    timed: _TimedParser, golds: Sequence[str], values: Sequence[Any]
) -> Iterator[ParserReading]:
    """Texts that say nothing and score with golds that don't hold them."""
    for text in (*BLANK_TEXTS, *EMPTY_PHRASES):
        value, as_text = timed.read(text)
        others = (row for row, gold in enumerate(golds) if text in BLANK_TEXTS or text not in gold)
        right = sum(are_readings_equal_and_not_none(value, values[row]) for row in others)
        if right:
            what = "an empty answer" if text in BLANK_TEXTS else "a text that says nothing"
            yield ParserReading(
                f"{what}, right for {right:,} of {len(golds):,} golds", text, "nothing", as_text
            )


def _find_question_scoring_as_its_answer(
    timed: _TimedParser, questions: Sequence[str], values: Sequence[Any], chance: float
) -> list[ParserReading]:
    """The first question that scores as its own answer, where more do than chance makes; else none.

    Args:
        timed: the parser.
        questions: of the golds, in their order.
        values: what the parser reads of each gold.
        chance: share of the golds that another gold's reading scores with.
    """
    scoring = []
    for row, (question, gold) in enumerate(zip(questions, values, strict=False)):
        value, as_text = timed.read(question)
        if are_readings_equal_and_not_none(value, gold):
            what = "the question, given as the answer"
            scoring.append(
                ParserReading(what, question[-MAX_SHOWN_CHARACTERS:], "nothing", as_text, row)
            )
    count = min(len(questions), len(values))
    if count < MIN_QUESTIONS:
        return []
    # Four standard errors of a share, and a tenth more, for questions of multiple choice hold their answers: half of
    # them may score.
    spread = 4 * (chance * (1 - chance) / count) ** 0.5
    return scoring[:1] if len(scoring) / count > max(0.5, chance + spread + 0.1) else []


def _try_reworded_golds(
    timed: _TimedParser,
    golds: Sequence[str],
    values: Sequence[Any],
    finals: Sequence[FinalAnswer | None],
    rows: Sequence[int],
) -> tuple[list[ParserReading], list[tuple[str, bool]]]:
    """Read golds in other wordings, as models give them.

    Args:
        timed: the parser.
        golds: as they stand in the data.
        values: what it reads of each.
        finals: the final answer of each.
        rows: which golds are tried.

    Returns:
        (an example of each wording that is misread; wording -> is it read right)
    """
    outcomes: dict[str, list[_WrappingOutcome]] = {}
    for row in rows:
        final = finals[row]
        assert final is not None
        # Readings of golds with another final answer: such a one is a wrong value, not an unread one.
        others = [
            value
            for value, other in zip(values, finals, strict=True)
            if _final_key(other) != _final_key(final)
        ]
        for form, text in (*answer_phrasings(final), *number_spellings(golds[row], final)):
            value, as_text = timed.read(text)
            reading = ParserReading(f"`{form}` for a gold answer", text, final.text, as_text, row)
            is_right = are_readings_equal_and_not_none(value, values[row])
            # To read nothing of a strange wording is a parser's right; to read another value is not.
            is_misread = not is_right and not _is_no_answer_read(value, final, others)
            outcomes.setdefault(form, []).append(_WrappingOutcome(reading, is_right, is_misread))
    misread, forms = [], []
    for form, tries in outcomes.items():
        wrong = [one.reading for one in tries if one.is_misread]
        if len(wrong) > MAX_MISREAD_SHARE * len(tries):
            misread.append(wrong[0])
        forms.append((form, sum(one.is_right for one in tries) > len(tries) / 2))
    return misread, forms


def _is_no_answer_read(value: Any, final: FinalAnswer, others: Sequence[Any]) -> bool:
    """Is a reading nothing, or no answer: a text that is neither a number nor a letter, nor another gold's reading?"""
    if value is None or final.kind == "json":
        return value is None
    return (
        isinstance(value, str)
        and parsed_answer_as_number_or_letter(value) is None
        and not any(are_readings_equal_and_not_none(value, other) for other in others)
    )


def _find_unstable_readings(
    timed: _TimedParser, golds: Sequence[str], readings: Sequence[tuple[Any, str]]
) -> Iterator[ParserReading]:
    """Golds that are read otherwise the second time, in another order: the parser keeps something between calls."""
    for row in reversed(range(len(golds))):
        value, as_text = readings[row]
        second_value, second_shown = timed.read(golds[row])
        # A reading that is not equal to itself is told as a missed gold.
        if are_readings_equal_and_not_none(value, value) and not are_readings_equal_and_not_none(
            second_value, value
        ):
            yield ParserReading(
                "a gold answer, a second time",
                golds[row][-MAX_SHOWN_CHARACTERS:],
                as_text,
                second_shown,
                row,
            )


def _share_of_golds_scored(value: Any, values: Sequence[Any]) -> float:
    """The share of the golds that one reading scores with."""
    return (
        sum(are_readings_equal_and_not_none(value, gold) for gold in values) / len(values)
        if values
        else 0.0
    )


def _distinct_readings(values: Sequence[Any]) -> list[Any]:
    """Up to MAX_PAIRED_GOLDS different readings. A list, for readings need not be hashable."""
    distinct: list[Any] = []
    for value in values:
        if value is None or len(distinct) >= MAX_PAIRED_GOLDS:
            continue
        if not any(are_readings_equal_and_not_none(value, other) for other in distinct):
            distinct.append(value)
    return distinct


def _final_key(final: FinalAnswer | None) -> tuple[str, str] | None:
    """What two equal final answers have in common; None of none."""
    return final and (final.kind, final.value)


def _final_text(final: FinalAnswer | None) -> str:
    """A final answer for a reader; empty of none."""
    if final is None:
        return ""
    return (final.value if final.kind in ("number", "letter") else final.text)[
        :MAX_SHOWN_CHARACTERS
    ]


def _safe_repr_of_reading(value: Any) -> str:
    """A reading for a reader. A parser is the user's code, and so is the representation of what it gives."""
    with suppress(Exception):
        return repr(value)[:MAX_SHOWN_CHARACTERS]
    return f"a {type(value).__name__} without a representation"
