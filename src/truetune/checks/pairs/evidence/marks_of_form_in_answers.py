"""Marks of form that an answer has or has not, by which a model could tell the sides of pairs without reading them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from truetune.checks.rows.refusals_in_answers import REFUSALS

READ_CHARACTERS = 8_000
"""Characters of an answer that are looked at"""
MIN_POINTS = 2
"""Lines of a list"""
POINT = re.compile(r"^[ \t]*(?:[-*\u2022]|\d{1,2}[.)])[ \t]+\S", re.MULTILINE)
BOLD_OR_HEADING = re.compile(r"^#{1,6} \S|\*\*[^*\n]+\*\*", re.MULTILINE)
REASONING = re.compile(r"</?think(?:ing)?>|<\|?(?:thought|reasoning)")
EMOJI = re.compile("[\U0001f300-\U0001faff\u2600-\u27bf]")
LATIN = re.compile(r"[A-Za-z\u00c0-\u024f]")
LETTER = re.compile(r"[^\W\d_]")
MIN_LETTERS = 20
"""Letters by which the script of an answer is known"""
UNFINISHED = re.compile(r"(?:\S+[ \t]+){5}\S*[^\W_]\s*\Z")
"""Six words in the last line, and no mark behind them"""
FENCE = "```"


class MarkOfForm(NamedTuple):
    """One mark of form."""

    name: str
    """As it follows `answers`: `have a list`"""
    is_in: Callable[[str], bool]
    may_be_meant: bool = False
    """Of the chosen answers it is what such pairs are often made for"""
    least_gap: float = 0.5
    """How many more of the pairs must have it on one side alone than on the other alone"""


def _has_list(text: str) -> bool:
    return sum(1 for _ in POINT.finditer(text)) >= MIN_POINTS


def _is_mostly_in_other_script(text: str) -> bool:
    letters = len(LETTER.findall(text))
    return letters >= MIN_LETTERS and 2 * len(LATIN.findall(text)) < letters


def _refuses(text: str) -> bool:
    return any(pattern.search(text[:300]) for pattern in REFUSALS.values())


def _breaks_off(text: str) -> bool:
    return text.count(FENCE) % 2 == 1 or UNFINISHED.search(text) is not None


# In LLaMA-Factory's two sets of 300 pairs no mark has a gap above 0.12, and ends inside a sentence have 0.01.
MARKS_OF_FORM = (
    MarkOfForm("refuse", _refuses, may_be_meant=True),
    MarkOfForm("are in another script", _is_mostly_in_other_script, may_be_meant=True),
    MarkOfForm("break off inside a sentence or a block of code", _breaks_off, least_gap=0.2),
    MarkOfForm(
        "have reasoning tags", lambda text: REASONING.search(text) is not None, may_be_meant=True
    ),
    MarkOfForm("have a list", _has_list),
    MarkOfForm(
        "have bold words or headings", lambda text: BOLD_OR_HEADING.search(text) is not None
    ),
    MarkOfForm("have a block of code", lambda text: FENCE in text),
    MarkOfForm("have an emoji", lambda text: EMOJI.search(text) is not None),
    MarkOfForm("begin or end with white space", lambda text: text != text.strip(), least_gap=0.3),
    MarkOfForm("begin in a small letter", lambda text: text.lstrip()[:1].islower()),
)
"""In the order in which they are told"""


def marks_of_form_in(text: str) -> frozenset[str]:
    """The names of the marks of form that an answer has."""
    part = (
        text
        if len(text) <= READ_CHARACTERS
        else text[: READ_CHARACTERS // 2] + text[-READ_CHARACTERS // 2 :]
    )
    return frozenset(mark.name for mark in MARKS_OF_FORM if mark.is_in(part))
