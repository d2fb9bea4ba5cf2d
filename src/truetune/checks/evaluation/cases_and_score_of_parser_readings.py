"""Shows what a parser read of answers: as cases of a finding, and as a score.

The rules on parsers show readings in one form: the text's end, where answers stand, what was read of it and what was
expected.
"""

from __future__ import annotations

from collections.abc import Iterable

from truetune.checks.findings import SHOWN_CASES, Case
from truetune.generation.parser_selftest_results import ParserReading

# Chosen to fit a line together with both values.
SHOWN_CHARS = 80


def few_cases_by_reason(readings: Iterable[ParserReading]) -> list[Case]:
    """A few cases, one of each reason first: a terminal shows three."""
    by_reason: dict[str, list[ParserReading]] = {}
    for reading in readings:
        by_reason.setdefault(reading.what, []).append(reading)
    firsts = [group[0] for group in by_reason.values()]
    others = [reading for group in by_reason.values() for reading in group[1:]]
    return [_case_of_reading(reading) for reading in (firsts + others)[:SHOWN_CASES]]


def describe_score(good: int, of: int) -> str:
    """A share with its counts, as text: `0.25 (5 of 20)`."""
    return f"{good / of:.2f} ({good:,} of {of:,})"


def _case_of_reading(reading: ParserReading) -> Case:
    """The text, what was read of it, and what was expected."""
    row = "" if reading.row is None else f"gold {reading.row + 1}, "
    return Case(
        f'{row}{reading.what}: "{_shorten_to_end(reading.text)}" is read as'
        f" {_shorten_to_end(reading.read)}; expected {_shorten_to_end(reading.wanted)}"
    )


def _shorten_to_end(text: str) -> str:
    """The end of a text, where answers stand, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARS else "..." + line[3 - SHOWN_CHARS :]
