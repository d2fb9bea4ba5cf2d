"""Words of a text in any script: what scores of answers count.

A word is a run of letters and digits, with the marks that belong to it in Hebrew, Arabic and Indian scripts. Scripts
without spaces (Chinese, Japanese, Thai, ...) are taken by characters: true words would need a dictionary for each. So
counts of words mean less there, and `count_words_of_units` weighs a character as half a word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# Chosen, not measured: German compounds have up to 30.
MAX_WORD_LETTERS = 32
"""A run of letters that is longer is no word: it is taken by characters, so that a loop inside of it is seen"""
IDEOGRAPHS = "\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
"""Japanese, Chinese and Korean, in which a character says as much as some letters"""
DENSE = IDEOGRAPHS + "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff"
"""These, and scripts without spaces: Thai, Lao, Burmese, Khmer"""
# Without them a vowel sign would end a word of Hindi.
_MARKS = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0963\u0966-\u0dff"
"""What `\\w` leaves out of Hebrew, Arabic and Indian words, and accents on their own"""
_RUN = rf"(?:[^\W{DENSE}]|[{_MARKS}])+"
_WORD = re.compile(rf"[{DENSE}]|{_RUN}")
_CHARACTER = re.compile(f"[{DENSE}]")
# Spaces join words to a stretch, marks and line breaks end it: a loop is said in one breath.
_STRETCH = re.compile(rf"(?:\w|[{_MARKS}])+(?:[ \t]+(?:\w|[{_MARKS}])+)*")
_UNIT = re.compile(rf"[{DENSE}]|{_RUN}|[^\w\s]")


def split_words(text: str) -> list[str]:
    """The words of a text, without case and punctuation; scripts without spaces by characters."""
    # casefold and not lower: ß and ss are one letter to a reader.
    return _WORD.findall(text.casefold())


def split_units(text: str) -> list[str]:
    """Words and marks in order, without case; runs of letters without end by characters."""
    units: list[str] = []
    for unit in _UNIT.findall(text.casefold()):
        units.extend(unit if len(unit) > MAX_WORD_LETTERS else (unit,))
    return units


def split_words_between_marks(text: str) -> list[list[str]]:
    """Words, those of each stretch without a mark or a line's end between them."""
    return [split_units(stretch) for stretch in _STRETCH.findall(text)]


def is_word(unit: str) -> bool:
    """Is it a word or a number, and no mark?"""
    return bool(_WORD.match(unit))


def contains_word_sequence(words: Sequence[str], wanted: Sequence[str]) -> bool:
    """Do the words `wanted` stand among `words`, one after the other? Both as `split_words` gives them."""
    starts = range(len(words) - len(wanted) + 1)
    return any(words[start : start + len(wanted)] == wanted for start in starts)


def count_words_of_units(units: Sequence[str]) -> float:
    """How many words some units are: a character of a script without spaces is half of one, a number or a mark none."""
    return sum((0.5 if _CHARACTER.match(unit) else 1.0) for unit in units if unit[0].isalpha())
