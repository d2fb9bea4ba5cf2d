"""Readings of a parser as cases and counts."""

from __future__ import annotations

from collections.abc import Iterable

from truetune.checks.findings import SHOWN_CASES, Case
from truetune.generation.parser_selftest import ParserReading

SHOWN = 80


def cases(readings: Iterable[ParserReading]) -> list[Case]:
    """A few, with different reasons first."""
    ordered: dict[str, list[ParserReading]] = {}
    for reading in readings:
        ordered.setdefault(reading.what, []).append(reading)
    firsts = [found.pop(0) for found in ordered.values()]
    rest = [reading for found in ordered.values() for reading in found]
    return [_case(reading) for reading in (firsts + rest)[:SHOWN_CASES]]


def share(good: int, of: int) -> str:
    """`0.25 (5 of 20)`"""
    return f"{good / of:.2f} ({good:,} of {of:,})"


def _case(reading: ParserReading) -> Case:
    row = "" if reading.row is None else f"gold {reading.row + 1}, "
    return Case(
        f"{row}{reading.what}: {_brief(reading.text)} is read as"
        f" {_brief(reading.read, quote=False)}; expected {_brief(reading.wanted, quote=False)}"
    )


def _brief(text: str, *, quote: bool = True) -> str:
    """The end of a text, where answers stand, on one line."""
    line = " ".join(text.split())
    line = line if len(line) <= SHOWN else "..." + line[3 - SHOWN :]
    return f'"{line}"' if quote else line
