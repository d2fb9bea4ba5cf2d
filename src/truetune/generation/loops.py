"""Loops: does a text end in the same words over and over?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from truetune.generation.words import units, worth

TAIL = 1000
"""Units of the end of a text that are looked at"""
UNFINISHED = 3
"""Units at its end that may be the beginning of a word, or a mark behind the last round"""
SPACE = 40
"""Characters of white space at the end that are a loop"""
MARKS = 100
"""Units of a loop without letters (a rule of dashes may have 80)"""
_NUMBERING = re.compile(r"^\s*(?:\d+[.):]|[-*•])\s*", re.MULTILINE)


def looped(text: str, *, cut: bool) -> bool:
    """Does it end in the same words over and over? The numbers of a list aside.

    An answer that was cut at the limit needs four rounds of 12 words in all, or three of 30. A loop rarely ends by
    itself, and the refrain of a song comes four times: one that stopped needs eight rounds that are half of it.
    """
    if cut and len(text) - len(text.rstrip()) >= SPACE:
        return True
    found = units(_NUMBERING.sub("", text))[-TAIL:]
    for end in range(len(found), max(0, len(found) - UNFINISHED), -1):
        for period in range(1, end // 3 + 1):
            if found[end - 1] != found[end - 1 - period]:
                continue
            length = _periodic(found, end, period)
            if length >= 3 * period and _is_loop(found[end - length : end], length / period, length / len(found), cut):
                return True
    return False


def _is_loop(repeated: Sequence[str], rounds: float, share: float, cut: bool) -> bool:
    letters = worth(repeated)
    if not cut:
        return rounds >= 8 and letters >= 24 and share >= 0.5
    if letters == 0:
        return len(repeated) >= MARKS
    return letters >= (12 if rounds >= 4 else 30)


def _periodic(found: Sequence[str], end: int, period: int) -> int:
    """Length of the longest range before `end` that repeats after `period` units."""
    at = end - 1
    while at >= period and found[at] == found[at - period]:
        at -= 1
    return end - 1 - at + period
