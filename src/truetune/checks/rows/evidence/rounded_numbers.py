"""Finds long numbers of an answer that are numbers of its prompt after a float has rounded them.

A float64 holds 53 bits, a float32 24, and a spreadsheet 15 digits. An id that goes through one of them keeps its
length and its first digits, and gets other last ones. Which ones is exact, so that a rounded number is told from
another number without a threshold.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation

# A float32 is exact up to 16,777,216. Chosen: nine digits, so that a round amount of money is not one by chance.
MIN_DIGITS, MAX_DIGITS = 9, 40
SPREADSHEET_DIGITS = 15
MIN_EXPONENT_DIGITS = 12
"""From which spreadsheets write a number with an exponent; people do so for shorter ones"""
SEPARATED = re.compile(r"(?<=\d)[ \u00a0-](?=\d)")
LONG_NUMBER = re.compile(rf"(?<![\w.,])\d{{{MIN_DIGITS},{MAX_DIGITS}}}(?!\w|[.,]\d)")
GIVEN_NUMBER = re.compile(
    rf"(?<![\w.,])(?:\d{{{MIN_DIGITS},{MAX_DIGITS}}}(?:\.0{{1,2}})?|\d\.\d{{2,17}}[eE]\+?\d{{1,2}})(?!\w|[.,]\d)"
)
ASKS_FOR_ROUNDING = re.compile(
    r"\bround|scientific|standard form|exponent|\bpowers?\b|floating|\bfloat|precision"
    r"|significant|approximat|nearest|double|runde|arrond",
    re.I,
)


def numbers_copied_from_prompt(prompt: str, answer: str) -> Iterator[tuple[str, str]]:
    """(number in the answer, number of the prompt) of each long number that is the same, or was rounded.

    Args:
        prompt: all that comes before the answer; one that asks for rounding has none.
        answer: its numbers of other sources are left out.
    """
    given_numbers = GIVEN_NUMBER.findall(answer)
    if not given_numbers or ASKS_FOR_ROUNDING.search(prompt):
        return
    sources = dict.fromkeys(
        number
        for text in (prompt, SEPARATED.sub("", prompt))
        for number in LONG_NUMBER.findall(text)
    )
    for given in given_numbers:
        if given in sources:
            yield given, given
            continue
        source = next((one for one in sources if is_rounded_by_float(one, given)), None)
        if source is not None:
            yield given, source


def is_rounded_by_float(source: str, given: str) -> bool:
    """Is a number what a float or a spreadsheet makes of another one, and not that number?

    Args:
        source: digits alone.
        given: digits, with `.0` or an exponent where a program wrote it so.
    """
    try:
        value = Decimal(given)
    except InvalidOperation:
        return False
    whole = int(source)
    if "e" in given.lower():
        if len(source) < MIN_EXPONENT_DIGITS:
            return False
        digits = len(given.lower().partition("e")[0]) - 2
        return f"{Decimal(source):.{digits}e}" == f"{value:.{digits}e}"
    if value == whole:
        return False
    cut = 10 ** max(0, len(source) - SPREADSHEET_DIGITS)
    # JavaScript writes the shortest digits that give the float64, with zeros behind them.
    double = float(source)
    return value in (
        int(double),
        Decimal(repr(double)),
        struct.unpack("f", struct.pack("f", min(double, 3e38)))[0],
        whole // cut * cut,
    )
