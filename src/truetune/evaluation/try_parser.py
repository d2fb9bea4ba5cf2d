"""Parser proof: a parser reads gold answers, shuffled ones and none, before it judges a model."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from itertools import combinations
from typing import Any

from truetune.generation.answer_parsers import (
    READING_TIMEOUT_S,
    Parser,
    parse_answer,
    same_reading,
    try_parse,
)
from truetune.generation.final_answers import (
    FinalAnswer,
    answer_phrasings,
    bare_value,
    find_final_answer,
    holds_final_answer,
    normalise_reading,
    number_spellings,
)
from truetune.generation.parser_selftest import ParserReading, ParserSelftest

MAX_GOLDS, MAX_PAIRED_GOLDS, MAX_WRAPPED_GOLDS = 500, 200, 24
"""Golds that are read, compared with each other, and wrapped otherwise; at most"""
MIN_KNOWN_SHARE = 0.9
"""Share of the golds whose final answer must be marked, for chance to be known"""
MAX_MISREAD_SHARE = 0.3
"""Share of the golds that a wrapping must be misread for, to count"""
BLANK_TEXTS = ("", " \n")
EMPTY_PHRASES = (
    "I don't know.", "Sorry, I can't help with that.", "A good question!", "The answer is", "Answer:", "####",
    "\\boxed{}", "N/A",
)  # fmt: skip
"""Texts that say nothing"""
LONG_TEXT_CHARS = 3000
"""Characters of the texts that a parser is timed on"""
NOTHING = "nothing"
"""What is shown where a parser reads nothing"""
SHOWN_CHARS = 400
"""Characters of a text that are kept"""


class _TimedParser:
    """A parser that remembers how long it took, the last time and at most."""

    def __init__(self, parse: Parser, seconds: float) -> None:
        self.parse, self.seconds = parse, seconds
        self.last = self.slowest = 0.0

    def __call__(self, text: str) -> tuple[Any, str]:
        """What it reads, and the same for a reader."""
        started = time.perf_counter()
        try:
            value = parse_answer(self.parse, text, self.seconds)
        except Exception as error:
            value, shown = None, f"{type(error).__name__}: {error}".splitlines()[0][:SHOWN_CHARS]
        else:
            shown = NOTHING if value is None else _safe_repr(value)
        self.last = time.perf_counter() - started
        self.slowest = max(self.slowest, self.last)
        return value, shown


def try_parser(
    parse: Parser,
    golds: Sequence[str],
    *,
    name: str,
    questions: Sequence[str] = (),
    seconds: float = READING_TIMEOUT_S,
) -> ParserSelftest:
    """Try a parser on gold answers (`Prompt.reference` of each row), and, where given, on their questions as answers.

    No model is needed. The golds are taken in order, at most 500. Never raises what the parser raises.
    """
    golds = golds[:MAX_GOLDS]
    tried = _TimedParser(parse, seconds)
    shaky = list(_find_slow_text(tried, golds))
    if shaky:
        return ParserSelftest(
            name, len(golds), 0, None, None, 0.0, tried.slowest, gave_up=True, shaky=tuple(shaky)
        )
    found = [tried(gold) for gold in golds]
    values = [value for value, _ in found]
    blank = tried("")[0]
    finals = [find_final_answer(gold) for gold in golds]
    missed = list(_find_missed_golds(golds, found, finals, blank))
    shuffled, chance, alike = _try_shuffled(golds, values, finals)
    silent = list(_try_empty_phrases(tried, golds, values))
    silent += _try_questions(tried, questions, values, shuffled or 0.0)
    shaky = list(_find_unstable(tried, golds, found))
    lost = {reading.row for reading in (*missed, *shaky)}
    right = [row for row, final in enumerate(finals) if final and row not in lost]
    misread, forms = _try_wrappings(
        tried,
        golds,
        values,
        finals,
        right[:MAX_WRAPPED_GOLDS] if len(right) >= len(golds) / 2 else [],
    )
    return ParserSelftest(
        name=name,
        golds=len(golds),
        read=len(golds) - len(missed),
        shuffled=shuffled,
        chance=chance,
        empty=max(_share_right(tried(text)[0], values) for text in BLANK_TEXTS),
        slowest=tried.slowest,
        values=len(_distinct_readings(values)),
        different=len(set(golds)),
        wordy=any(final is not None and final.kind == "word" for final in finals),
        missed=tuple(missed),
        misread=tuple(misread),
        alike=tuple(alike),
        nothing=tuple(silent),
        shaky=tuple(shaky),
        forms=tuple(forms),
    )


def add_model_answers(
    proof: ParserSelftest, parse: Parser, golds: Sequence[str], answers: Sequence[str]
) -> ParserSelftest:
    """The same proof with what the parser makes of a model's answers to the same rows."""
    unread = [
        ParserReading(
            "an answer that holds the gold one",
            answer[:SHOWN_CHARS],
            gold[:SHOWN_CHARS],
            "nothing",
            row,
        )
        for row, (gold, answer) in enumerate(zip(golds, answers, strict=True))
        if try_parse(parse, answer) is None and holds_final_answer(answer, gold)
    ]
    missed = proof.missed
    if any(_reads_as(parse, gold, answer) for gold, answer in zip(golds, answers, strict=True)):
        # The parser is for the answers' form, and the references are values already: nothing is missed in them.
        missed = tuple(one for one in missed if bare_value(one.text) is None or one.read != NOTHING)
    read_golds = proof.read + len(proof.missed) - len(missed)
    return replace(
        proof, unread=tuple(unread), answers=len(answers), missed=missed, read=read_golds
    )


def _reads_as(parse: Parser, gold: str, answer: str) -> bool:
    """Does a parser that reads nothing of a bare gold value read that value in the answer?"""
    value = bare_value(gold)
    return (
        value is not None
        and try_parse(parse, gold) is None
        and normalise_reading(try_parse(parse, answer)) == value
    )


def _find_slow_text(tried: _TimedParser, golds: Sequence[str]) -> Iterator[ParserReading]:
    """The first text that takes too long, twice; golds and repetitions, as answers are that run on."""
    longest = max(golds, key=len, default="")
    with suppress(Exception):
        parse_answer(tried.parse, longest, 10 * tried.seconds)
    starts = [
        f"{mark * 200}!"
        for mark in ("a", "1", " ", "\n", "a ", "1,", "{", "```\n", "the answer is ")
    ]
    repeated = (
        text * (LONG_TEXT_CHARS // len(text)) + "!"
        for text in (longest[:LONG_TEXT_CHARS], *starts)
        if text
    )
    for text in (*golds[:3], *starts, *repeated):
        shown = tried(text)[1]
        if tried.last > tried.seconds and tried(text) and tried.last > tried.seconds:
            yield ParserReading(
                f"a text of {len(text):,} characters", text[:60], "an end within a second", shown
            )
            return


def _find_missed_golds(
    golds: Sequence[str],
    found: Sequence[tuple[Any, str]],
    finals: Sequence[FinalAnswer | None],
    blank: Any,
) -> Iterator[ParserReading]:
    """Golds that are not read, not read equal to themselves, read as an empty answer is, or as another value."""
    for row, (gold, (value, shown), final) in enumerate(zip(golds, found, finals, strict=True)):
        mine = normalise_reading(value)
        wanted = _final_text(final) or "something"
        if not same_reading(value, value):
            what = "a gold answer"
        elif same_reading(value, blank):
            what = "a gold answer, read as an empty one is"
        elif (
            final is not None
            and mine is not None
            and mine[0] == final.kind
            and not _is_final_value(mine[1], final)
        ):
            what = "a gold answer, read as another value than its final one"
        else:
            continue
        yield ParserReading(what, gold[-SHOWN_CHARS:], wanted, shown, row)


def _is_final_value(value: str, final: FinalAnswer) -> bool:
    """Is this the final answer, or as a share what it says in per cent?"""
    return value == final.value or (
        "%" in final.text
        and final.kind == "number"
        and Decimal(value) * 100 == Decimal(final.value)
    )


def _try_shuffled(
    golds: Sequence[str], values: Sequence[Any], finals: Sequence[FinalAnswer | None]
) -> tuple[float | None, float | None, list[ParserReading]]:
    """(what shuffled golds score, what they should, golds that only the parser takes for the same).

    Both are shares of all pairs of two golds, which is the mean over all shuffles without fixed points.
    """
    known = [row for row, final in enumerate(finals) if final is not None and final.kind != "json"]
    rows = known if len(known) >= MIN_KNOWN_SHARE * len(golds) else list(range(len(golds)))
    pairs = list(combinations(rows[:MAX_PAIRED_GOLDS], 2))
    if not pairs:
        return None, None, []
    equal = [(a, b) for a, b in pairs if same_reading(values[a], values[b])]
    if rows is not known:
        return len(equal) / len(pairs), None, []
    alike = [(a, b) for a, b in equal if _final_key(finals[a]) != _final_key(finals[b])]
    chance = sum(_final_key(finals[a]) == _final_key(finals[b]) for a, b in pairs) / len(pairs)
    readings = {
        b: ParserReading(
            f"a gold answer, read as gold {a + 1} is",
            golds[b][-SHOWN_CHARS:],
            _final_text(finals[b]),
            _safe_repr(values[b]),
            b,
        )
        for a, b in reversed(alike)
    }
    return len(equal) / len(pairs), chance, [readings[row] for row in sorted(readings)]


def _try_empty_phrases(
    tried: _TimedParser, golds: Sequence[str], values: Sequence[Any]
) -> Iterator[ParserReading]:
    """Texts that say nothing and score with golds that don't hold them."""
    for text in (*BLANK_TEXTS, *EMPTY_PHRASES):
        value, shown = tried(text)
        others = (row for row, gold in enumerate(golds) if text in BLANK_TEXTS or text not in gold)
        right = sum(same_reading(value, values[row]) for row in others)
        if right:
            what = "an empty answer" if text in BLANK_TEXTS else "a text that says nothing"
            yield ParserReading(
                f"{what}, right for {right:,} of {len(golds):,} golds", text, "nothing", shown
            )


def _try_questions(
    tried: _TimedParser, questions: Sequence[str], values: Sequence[Any], chance: float
) -> list[ParserReading]:
    """Questions that score as their own answers, where more do than chance makes."""
    found = [
        ParserReading(
            "the question, given as the answer", question[-SHOWN_CHARS:], "nothing", shown, row
        )
        for row, (question, gold) in enumerate(zip(questions, values, strict=False))
        for value, shown in (tried(question),)
        if same_reading(value, gold)
    ]
    of = min(len(questions), len(values))
    spread = 4 * (chance * (1 - chance) / of) ** 0.5 if of else 0.0
    return found[:1] if of >= 8 and len(found) / of > max(0.5, chance + spread + 0.1) else []


def _try_wrappings(
    tried: _TimedParser,
    golds: Sequence[str],
    values: Sequence[Any],
    finals: Sequence[FinalAnswer | None],
    rows: Sequence[int],
) -> tuple[list[ParserReading], list[tuple[str, bool]]]:
    """(wrappings that are misread, an example of each; wrapping -> is it read right)"""
    outcomes: dict[str, list[ParserReading | bool]] = {}
    for row in rows:
        final = finals[row]
        assert final is not None
        others = [
            value
            for value, other in zip(values, finals, strict=True)
            if _final_key(other) != _final_key(final)
        ]
        for form, text in (*answer_phrasings(final), *number_spellings(golds[row], final)):
            value, shown = tried(text)
            bad = ParserReading(f"`{form}` for a gold answer", text, final.text, shown, row)
            right = same_reading(value, values[row])
            outcomes.setdefault(form, []).append(
                right if right or _is_unread(value, final, others) else bad
            )
    misread = {
        form: [one for one in tries if isinstance(one, ParserReading)]
        for form, tries in outcomes.items()
    }
    wrong = [
        found[0]
        for form, found in misread.items()
        if len(found) > MAX_MISREAD_SHARE * len(outcomes[form])
    ]
    forms = [
        (form, sum(one is True for one in tries) > len(tries) / 2)
        for form, tries in outcomes.items()
    ]
    return wrong, forms


def _is_unread(value: Any, final: FinalAnswer, others: Sequence[Any]) -> bool:
    """Is a reading nothing, or no answer: a text that is neither a number nor a letter, nor another gold's reading?"""
    if value is None or final.kind == "json":
        return value is None
    return (
        isinstance(value, str)
        and normalise_reading(value) is None
        and not any(same_reading(value, other) for other in others)
    )


def _find_unstable(
    tried: _TimedParser, golds: Sequence[str], found: Sequence[tuple[Any, str]]
) -> Iterator[ParserReading]:
    """Golds that are read otherwise the second time, in another order."""
    for row in reversed(range(len(golds))):
        value, shown = found[row]
        again, now = tried(golds[row])
        if same_reading(value, value) and not same_reading(again, value):
            yield ParserReading(
                "a gold answer, a second time", golds[row][-SHOWN_CHARS:], shown, now, row
            )


def _share_right(value: Any, values: Sequence[Any]) -> float:
    """The share of the golds that one reading scores with."""
    return sum(same_reading(value, gold) for gold in values) / len(values) if values else 0.0


def _distinct_readings(values: Sequence[Any]) -> list[Any]:
    """Up to PAIRED different readings."""
    found: list[Any] = []
    for value in values:
        if (
            value is not None
            and len(found) < MAX_PAIRED_GOLDS
            and not any(same_reading(value, other) for other in found)
        ):
            found.append(value)
    return found


def _final_key(final: FinalAnswer | None) -> tuple[str, str] | None:
    return final and (final.kind, final.value)


def _final_text(final: FinalAnswer | None) -> str:
    if final is None:
        return ""
    return (final.value if final.kind in ("number", "letter") else final.text)[:SHOWN_CHARS]


def _safe_repr(value: Any) -> str:
    with suppress(Exception):
        return repr(value)[:SHOWN_CHARS]
    return f"a {type(value).__name__} without a representation"
