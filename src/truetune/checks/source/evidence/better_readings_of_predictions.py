"""Finds another way to read a script's predictions that matches far more references than the
script's own way.

How it works: the pattern is run over the predictions beside the script, as the script does. Then
one thing of the reading is changed: the last match for the first, another group, a flag, or what is
left out before texts are compared.

The trade-off: only one change at a time, and only where the script does not do it itself somewhere.
References are short texts, or what the same search takes of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from truetune.checks.source.evidence.scored_rows import RowsOfAnyType, rows_of_each_file_with_column
from truetune.checks.source.evidence.which_regex_match_script_takes import (
    FIRST,
    LAST,
    PART_NAMES,
    TakenMatch,
)
from truetune.render.unfilled_example_plan import THINK_END
from truetune.source.parsed_source_file import Module

MIN_ROWS = 8
"""Rows from which a share is one. Chosen, not measured, as for other rules on patterns"""
# Chosen, not measured. Of four letters one in four is right by chance, so a reading that gains a fifth of the rows
# beside a script that is right in some is no accident, and a model that is right in three of ten is one.
MIN_GAIN, MIN_RIGHT = 0.2, 0.3
MAX_PARTS = 0.05
"""Share of texts in which a match is a letter of a word, from which pattern-takes-part-of-a-word names the pattern"""
MAX_REFERENCE_WORDS = 4
"""Words of a reference that is compared as it is. Chosen, not measured: a longer one is no value to be read"""
MAX_TEXT = 20_000
"""Characters of a text that patterns are run over. Chosen, not measured: it bounds the time"""
NUMBERS = ("float", "int", "decimal.Decimal", "fractions.Fraction", "sympy.*", "math_verify.*")
CASES = ("lower", "upper", "casefold", "title", "capitalize")
STRIPS = ("strip", "rstrip", "lstrip")
MARKS = " \t\n.,;:!*$\"'()[]"
REFERENCE = re.compile(
    r"(?:\w+_)?(?:answer|gold|golden|label|target|reference|ref|expected|solution|truth|ground_?truth|gt|correct|"
    r"result|y|completion|output|key)(?:_\w+)?",
    re.I,
)
"""Columns that may be the reference"""
SEPARATORS = re.compile(r"[,\s$%]")
CLOSE = 1e-6
"""Difference below which two numbers are one"""
Equal = Callable[[str, str], bool]


class Reading(NamedTuple):
    """One way to read a prediction and to compare it."""

    what: str
    """What is changed, for a sentence; empty of the script's own"""
    remedy: str
    take: Callable[[str], str | None]
    is_equal: Equal


class OtherReading(NamedTuple):
    """A reading that is right far more often than the script's."""

    match: TakenMatch
    reference: str
    """The column of the references"""
    reading: Reading
    own: int
    other: int
    of: int
    source: str
    example: tuple[str, str, str]
    """(end of the prediction, what the script takes, the reference) of a row"""
    elsewhere: tuple[str, int, int] | None
    """(file, right rows, rows) of predictions of which the script's reading is right more often"""


def better_reading_of_predictions(module: Module, match: TakenMatch) -> OtherReading | None:
    """A reading of the predictions beside a script that finds far more references than the
    script's; else None.
    """
    other_reading: OtherReading | None = None
    better: tuple[str, int, int] | None = None
    for rows in rows_of_each_file_with_column(module, match.column):
        for reference in _reference_columns(module, match, rows):
            pairs = list(
                _texts_and_references(
                    match, rows.rows, reference, _marks_script_splits_behind(module)
                )
            )
            if len(pairs) < MIN_ROWS:
                continue
            own = _reading_of_script(module, match)
            if _often_takes_letter_of_word(match, pairs):
                continue
            right = _count_right(own, pairs)
            best = max(
                _changed_readings(module, match),
                key=lambda one: _count_right(one, pairs),
                default=own,
            )
            gained = _count_right(best, pairs)
            if gained - right >= MIN_GAIN * len(pairs) and gained >= MIN_RIGHT * len(pairs):
                example = _example_only_other_gets_right(own, best, pairs)
                if other_reading is None:
                    other_reading = OtherReading(
                        match,
                        reference,
                        best,
                        right,
                        gained,
                        len(pairs),
                        rows.source,
                        example,
                        None,
                    )
            elif right >= MIN_RIGHT * len(pairs):
                better = (rows.source, right, len(pairs))
    return None if other_reading is None else other_reading._replace(elsewhere=better)


def _reference_columns(module: Module, match: TakenMatch, rows: RowsOfAnyType) -> Iterator[str]:
    """The columns that a script may compare with what it takes: those that it names."""
    named = {one.value for one in module.nodes(ast.Constant) if isinstance(one.value, str)}
    named |= {one.attr for one in module.nodes(ast.Attribute)}
    for column in rows.rows[0]:
        if column != match.column and column in named and REFERENCE.fullmatch(column):
            yield column


def _marks_script_splits_behind(module: Module) -> list[str]:
    """The marks that a script takes the rest behind: `####` of `gold.split("####")[-1]`."""
    marks: list[str] = []
    for call in module.methods("split", "rsplit", "rpartition", "partition"):
        mark = module.flow.value(call.args[0]) if call.args else None
        part = module.scopes.parent.get(call.node)
        # A mark of less than two characters is a space or a comma, which divides words and numbers.
        if isinstance(part, ast.Subscript) and isinstance(mark, str) and len(mark.strip()) > 1:
            marks.append(mark)
    return marks


def _texts_and_references(
    match: TakenMatch, rows: Sequence[Mapping[str, Any]], column: str, marks: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """(text as it is searched, reference) of the rows that have both; of a worked reference, what
    follows a mark.
    """
    for row in rows:
        text, reference = row.get(match.column), row.get(column)
        if not isinstance(text, str) or isinstance(reference, bool):
            continue
        searched = match.searched_text(text[:MAX_TEXT])
        plain = str(reference) if isinstance(reference, str | int | float) else ""
        mark = next((one for one in marks if one in plain), None)
        plain = plain if mark is None else plain.rpartition(mark)[2].strip()
        if searched is not None and 0 < len(plain.split()) <= MAX_REFERENCE_WORDS:
            yield searched, plain


def _often_takes_letter_of_word(match: TakenMatch, pairs: Sequence[tuple[str, str]]) -> bool:
    """Is the match often a letter inside a word? That is said of the pattern
    (pattern-takes-part-of-a-word).
    """
    letters = [
        text
        for text, _ in pairs
        if (letter_match := match.pattern.search(text)) is not None
        and _is_letter_of_a_word(text, letter_match)
    ]
    return match.which == FIRST and len(letters) >= MAX_PARTS * len(pairs)


def _is_letter_of_a_word(text: str, found: re.Match[str]) -> bool:
    """Is a match one letter, with other letters beside it?"""
    around = text[: found.start()][-1:] + text[found.end() :][:1]
    return len(found.group()) == 1 and found.group().isalpha() and any(map(str.isalpha, around))


def _count_right(reading: Reading, pairs: Sequence[tuple[str, str]]) -> int:
    """The rows in which a reading gives the reference."""
    return sum(_reading_gives_reference(reading, *pair) for pair in pairs)


def _reading_gives_reference(reading: Reading, text: str, reference: str) -> bool:
    """Does a reading of a text give its reference?"""
    taken = reading.take(text)
    return taken is not None and reading.is_equal(taken, reference)


def _example_only_other_gets_right(
    own: Reading, other: Reading, pairs: Sequence[tuple[str, str]]
) -> tuple[str, str, str]:
    """A row that the other reading alone gets right: its text, what the script takes, and the
    reference.
    """
    text, reference = next(
        pair
        for pair in pairs
        if _reading_gives_reference(other, *pair) and not _reading_gives_reference(own, *pair)
    )
    return text.strip()[-80:], own.take(text) or "nothing", reference


def _reading_of_script(module: Module, match: TakenMatch) -> Reading:
    """What the script takes, and how it compares."""
    return Reading(
        "",
        "",
        _match_taker(match, match.pattern, match.which, match.group),
        _comparison_of_script(module),
    )


def _changed_readings(module: Module, match: TakenMatch) -> Iterator[Reading]:
    """Readings that differ from the script's in one thing."""
    equal = _comparison_of_script(module)
    if THINK_END not in module.text:
        after_thought = _taker_after_reasoning(match)
        remedy = f"take what follows {THINK_END} first; answers that end before it were cut: allow more tokens"
        yield Reading(f"after {THINK_END}", remedy, after_thought, equal)
    yield from _readings_by_other_match(match, equal)
    yield from _readings_by_other_pattern(match, equal)
    own = _match_taker(match, match.pattern, match.which, match.group)
    if not any(module.methods(*CASES)):
        folded = _comparing_without_case(equal)
        yield Reading("without regard to case", "compare casefold() of both sides", own, folded)
    if not any(module.calls(*NUMBERS)):
        as_number = _comparing_numbers(equal)
        remedy = "compare numbers: float(text.replace(',', '')) of both sides"
        yield Reading("compared as a number", remedy, own, as_number)
    if not any(module.methods(*STRIPS)):
        bare = _comparing_without_marks(equal)
        yield Reading(
            "without surrounding spaces and punctuation",
            "strip both sides: .strip(' .*$')",
            own,
            bare,
        )


def _readings_by_other_match(match: TakenMatch, equal: Equal) -> Iterator[Reading]:
    """The readings by the last match instead of the first one, and by another group."""
    name = PART_NAMES.get(match.pattern.pattern, "match")
    if match.which == FIRST and not match.starts_at_begin:
        taker = _match_taker(match, match.pattern, LAST, match.group)
        how = "findall(text)[-1]" if name == "match" else "[-1]"
        remedy = f"take the last {name} ({how}), or the one after the words for the answer"
        yield Reading(f"the last {name}", remedy, taker, equal)
    if match.which == LAST:
        taker = _match_taker(match, match.pattern, FIRST, match.group)
        yield Reading(f"the first {name}", f"take the first {name}", taker, equal)
    for group in range(match.pattern.groups + 1):
        if group != match.group:
            taker = _match_taker(match, match.pattern, match.which, group)
            what = f"its group {group}" if group else "the whole match"
            yield Reading(what, f"take group({group})", taker, equal)


def _readings_by_other_pattern(match: TakenMatch, equal: Equal) -> Iterator[Reading]:
    """The readings by the same pattern with another flag, or searched anywhere in the text."""
    for flag in (re.IGNORECASE, re.DOTALL, re.MULTILINE):
        if not match.pattern.flags & flag:
            pattern = re.compile(match.pattern.pattern, match.pattern.flags | flag)
            name = f"re.{flag.name}"
            taker = _match_taker(match, pattern, match.which, match.group)
            yield Reading(f"with {name}", f"give {name} to the pattern", taker, equal)
    if match.starts_at_begin:
        anywhere = match._replace(starts_at_begin=False)
        taker = _match_taker(anywhere, match.pattern, FIRST, match.group)
        yield Reading(
            "what search finds further on", "use search, which finds it anywhere", taker, equal
        )


def _taker_after_reasoning(match: TakenMatch) -> Callable[[str], str | None]:
    """What takes the script's match of the text after a reasoning block, where there is one."""
    own = _match_taker(match, match.pattern, match.which, match.group)

    def take(text: str) -> str | None:
        return own(text.rpartition(THINK_END)[2])

    return take


def _match_taker(
    match: TakenMatch, pattern: re.Pattern[str], which: str, group: int
) -> Callable[[str], str | None]:
    """What takes a match of a text."""

    def take(text: str) -> str | None:
        if match.starts_at_begin:
            found = pattern.match(text)
        elif which == FIRST:
            found = pattern.search(text)
        else:
            found = None
            for one in pattern.finditer(text):
                found = one
        return None if found is None else found.group(group)

    return take


def _comparison_of_script(module: Module) -> Equal:
    """How a script compares: as numbers where it makes some, without case or spaces where it takes
    them off.
    """
    equal: Equal = _are_equal_texts
    if any(module.calls(*NUMBERS)):
        equal = _comparing_numbers(equal)
    if any(module.methods("replace", "translate")) or any(module.calls("re.sub")):
        equal = _comparing_without_separators(equal)
    if any(module.methods(*STRIPS)):
        equal = _comparing_without_marks(equal)
    return _comparing_without_case(equal) if any(module.methods(*CASES)) else equal


def _are_equal_texts(taken: str, reference: str) -> bool:
    """Are two texts the same?"""
    return taken == reference


def _comparing_numbers(equal: Equal) -> Equal:
    """The comparison of numbers where both texts are some."""

    def is_equal(taken: str, reference: str) -> bool:
        one, other = _as_number_without_separators(taken), _as_number_without_separators(reference)
        if one is None or other is None:
            return equal(taken, reference)
        return abs(one - other) < CLOSE

    return is_equal


def _comparing_without_separators(equal: Equal) -> Equal:
    """The comparison without commas and spaces, which a script that replaces something may take
    out.
    """
    return lambda taken, reference: equal(SEPARATORS.sub("", taken), SEPARATORS.sub("", reference))


def _as_number_without_separators(text: str) -> float | None:
    """The number that a text is, without separators and signs of money."""
    try:
        return float(text.replace(",", "").strip(MARKS + "%€£"))
    except ValueError:
        return None


def _comparing_without_case(equal: Equal) -> Equal:
    """The comparison without case."""
    return lambda taken, reference: equal(taken.casefold(), reference.casefold())


def _comparing_without_marks(equal: Equal) -> Equal:
    """The comparison without spaces and marks around."""
    return lambda taken, reference: equal(taken.strip(MARKS), reference.strip(MARKS))
