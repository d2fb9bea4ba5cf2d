"""Loops: does a text end in the same words over and over, or hold them so inside?

A loop at the end is found in every text. Inside of an answer that goes on to an end of its own, three things are one: a
run of the same words without a mark between them ("equals equals equals equals"), a phrase many times that fills
much of
the answer, and lines of which few are different. Refrains, tables, lists and code repeat themselves too, so each of
these needs more rounds than a song has.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from truetune.generation.split_words import (
    DENSE,
    count_words,
    is_word,
    split_stretches,
    split_units,
    split_words,
)

TAIL = 1000
"""Units of the end of a text that are looked at"""
UNFINISHED = 4
"""Units at its end that may be the beginning of a word, or a mark behind the last round"""
SPACE = 40
"""Characters of white space at the end that are a loop"""
MARKS = 100
"""Units of a loop without letters (a rule of dashes may have 80)"""
MARKED, MARKED_SHARE = 24, 1 / 3
"""The same where they are much of the answer: `?????`, `2 2 2 2`, `0000`; digits in rounds of three are numbers"""
WHOLE, MOST = 0.9, 0.8
"""Shares of an answer that stopped, which a loop of three rounds, or of four, must fill"""
ROUNDS, DENSE_ROUNDS = 4, 6
"""Rounds of words without a mark between them; of scripts without spaces, where words are doubled for emphasis"""
LETTERS = 16
"""Letters of such a run: `ha ha ha ha` and `no no no no` are said by people"""
LONG_ROUNDS, LONG_LETTERS = 6, 36
"""Rounds and letters of a loop of few but long words"""
MANY, MANY_LETTERS, MANY_SHARE = 8, 28, 0.7
"""Rounds, letters and share of a loop of short lines (`صحتي؟`, `保持！`) in an answer that stopped"""
FIVE, FIVE_LETTERS = 5, 36
"""The same of one that is most of an answer that was cut, two long words a round"""
SHORT_ROUNDS, SHORT_LETTERS, NEARLY_ALL = 6, 24, 0.95
"""The same of an answer that is nothing else: laughter has two letters a round"""
OPEN_ENDS = (",", "，", "、", "،", ";", ":", "：", "(")
"""Marks that no answer ends in: behind them it was cut"""
THIRD, SENTENCE = 2, 8.0
"""Units of the third round, and words of one, from which an answer that was cut there is a loop"""
DENSE_PHRASE, DENSE_LONG, DENSE_SHARE = 4, 6, 0.55
"""Different characters of a phrase without spaces that comes again, characters from which three rounds are enough, and
the share of all behind its first place that they fill"""
PERIOD = 8
"""Words of one round, at most"""
PHRASE, PHRASES, FILLED = 3, 6, 0.3
"""Words of a phrase with marks in it, its rounds, and the share of the answer that they fill"""
LINES, DIFFERENT = 6, 1 / 3
"""Lines of some words, and the share of them that is different where the others are copies"""
MARKUP = ("[", "{", "<")
"""What an answer begins with that is JSON, HTML or XML: these repeat keys and values by nature"""
_CLOSED = re.compile(r"```.*?```", re.DOTALL)
_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_STAMMER = re.compile(r"([^\W\d_]{3,8})\1{3,}")
"""Parts of a word again and again; laughter has two letters"""
_DENSE = re.compile(f"[{DENSE}]")
_NUMBERING = re.compile(r"^\s*(?:\d+[.):]|[-*•])\s*", re.MULTILINE)


def is_looping(text: str, *, cut: bool) -> bool:
    """Does it end in the same words over and over, or hold them so? The numbers of a list aside.

    An answer that was cut at the limit, or that ends in no mark, needs four rounds of 12 words in all, or three of
    30. The refrain of a song comes four times: in one that stopped a loop needs eight rounds that are half of it, or
    must be nearly all of it.
    """
    if len(text) - len(text.rstrip()) >= SPACE or _is_run_of_marks(text):
        return True
    text = (text if cut else _CLOSED.sub("\n", text)).rstrip("\ufffd")
    cut = cut or text.rstrip()[-1:].isalnum() or text.rstrip().endswith(OPEN_ENDS)
    if not cut and text.lstrip()[:1] in MARKUP:
        return False
    found = split_units(_NUMBERING.sub("", text))[-TAIL:]
    for end in range(len(found), max(0, len(found) - UNFINISHED), -1):
        for period in range(1, end // 2 + 1):
            if found[end - 1] != found[end - 1 - period]:
                continue
            length = _periodic_length(found, end, period)
            repeated, share = found[end - length : end], length / len(found)
            if length >= 3 * period and _is_loop(repeated, length / period, share, cut):
                return True
            if cut and share >= MOST and _begins_third_round(repeated, period):
                return True
    return (cut and _is_dense_loop(found)) or _repeats_inside(text)


def _begins_third_round(repeated: Sequence[str], period: int) -> bool:
    """Was it cut in the third round of a long sentence, or of some?"""
    return len(repeated) >= 2 * period + THIRD and count_words(repeated[:period]) >= SENTENCE


def _is_dense_loop(found: Sequence[str]) -> bool:
    """In a script without spaces: does one phrase fill most of what follows it, in rounds that differ by a particle?"""
    for length in range(DENSE_PHRASE, len(found) // 3 + 1):
        counts = Counter(zip(*(found[at:] for at in range(length)), strict=False))
        rounds = ROUNDS if length < DENSE_LONG else 3
        for phrase in (phrase for phrase, count in counts.items() if count >= rounds):
            if not all(map(_DENSE.match, phrase)) or len(set(phrase)) < DENSE_PHRASE:
                continue
            places = _find_phrase(found, phrase)
            filled = len(places) * length
            if len(places) >= rounds and filled >= DENSE_SHARE * (len(found) - places[0]):
                return filled >= FILLED * len(found)
    return False


def _find_phrase(found: Sequence[str], phrase: tuple[str, ...]) -> list[int]:
    """Where a phrase stands, without overlaps."""
    places, at = list[int](), 0
    while at <= len(found) - len(phrase):
        if tuple(found[at : at + len(phrase)]) == phrase:
            places.append(at)
            at += len(phrase)
        else:
            at += 1
    return places


def _is_loop(repeated: Sequence[str], rounds: float, share: float, cut: bool) -> bool:
    letters = count_words(repeated)
    if letters / rounds >= PHRASE and share >= (MOST if rounds >= ROUNDS else WHOLE):
        return True
    characters = _weighted_letters(repeated)
    if rounds >= SHORT_ROUNDS and characters >= SHORT_LETTERS and share >= NEARLY_ALL:
        return True
    if not cut:
        long = characters >= MANY_LETTERS and share >= MANY_SHARE
        return rounds >= MANY and (long or (letters >= 24 and share >= 0.5))
    if rounds >= FIVE and characters >= FIVE_LETTERS and share >= MOST:
        return True
    if letters == 0:
        return len(repeated) >= MARKS
    return letters >= (12 if rounds >= 4 else 30) or (
        rounds >= LONG_ROUNDS and characters >= LONG_LETTERS
    )


def _periodic_length(found: Sequence[str], end: int, period: int) -> int:
    """Length of the longest range before `end` that repeats after `period` units."""
    at = end - 1
    while at >= period and found[at] == found[at - period]:
        at -= 1
    return end - 1 - at + period


def _is_run_of_marks(text: str) -> bool:
    """Is the end, and much of the text, a few marks or digits again and again on one line, and no table's rule?"""
    text = text.rstrip("\ufffd")
    whole, line = ("".join(part.split()) for part in (text, text.rpartition("\n")[2]))
    return any(_ends_in_marks(line, period, len(whole)) for period in range(1, PERIOD + 1)) or (
        not any(map(str.isdigit, whole[-MARKED:])) and _ends_in_marks(whole, 1, len(whole))
    )


def _ends_in_marks(line: str, period: int, whole: int) -> bool:
    at = len(line) - 1
    while at >= period and line[at] == line[at - period]:
        at -= 1
    repeated = line[max(0, at - period + 1) :]
    letters = map(str.isalpha if period < 3 else str.isalnum, repeated)
    return (
        len(repeated) >= MARKED
        and len(repeated) >= MARKED_SHARE * whole
        and not any(letters)
        and "|" not in repeated
    )


def _repeats_inside(text: str) -> bool:
    """Does it repeat itself anywhere, more than a song does? Code in fences and JSON are left out."""
    bare = _FENCED.sub("\n", text).strip()
    if bare[:1] in MARKUP:
        return False
    if _STAMMER.search(bare):
        return True
    return (
        any(map(_has_run, split_stretches(bare))) or _repeats_phrase(bare) or _repeats_lines(bare)
    )


def _has_run(found: Sequence[str]) -> bool:
    """Are some words in it said again and again, one round after the other?"""
    for period in range(1, PERIOD + 1):
        length = 0
        for at in range(period, len(found)):
            length = length + 1 if found[at] == found[at - period] else 0
            repeated = found[at - length - period + 1 : at + 1]
            if length >= (ROUNDS - 1) * period and _is_run(repeated, len(repeated) / period):
                return True
    return False


def _is_run(repeated: Sequence[str], rounds: float) -> bool:
    """Is it more than laughter or emphasis?"""
    dense = any(_DENSE.match(unit) for unit in repeated)
    if dense and len(set(repeated)) == 1:
        return False
    return rounds >= (DENSE_ROUNDS if dense else ROUNDS) and _weighted_letters(repeated) >= LETTERS


def _weighted_letters(repeated: Sequence[str]) -> int:
    """Letters of some words; one of a script without spaces counts as three."""
    return sum(
        len(unit) * (3 if _DENSE.match(unit) else 1) for unit in repeated if unit[0].isalpha()
    )


def _repeats_phrase(text: str) -> bool:
    """Is much of it one phrase, with its marks, in one round after the other?"""
    found = split_units(_NUMBERING.sub("", text))[:TAIL]
    for period in range(PHRASE, len(found) // PHRASES + 1):
        length = 0
        for at in range(period, len(found)):
            length = length + 1 if found[at] == found[at - period] else 0
            if length < (PHRASES - 1) * period or length + period < FILLED * len(found):
                continue
            if (
                sum(is_word(unit) for unit in found[at - period + 1 : at + 1] if unit[0].isalpha())
                >= PHRASE
            ):
                return True
    return False


def _repeats_lines(text: str) -> bool:
    """Are its lines copies of a few of them?"""
    lines = Counter(
        line for line in map(_plain_line, text.splitlines()) if count_words(line) >= PHRASE
    )
    return lines.total() >= LINES and len(lines) <= DIFFERENT * lines.total()


def _plain_line(line: str) -> tuple[str, ...]:
    return tuple(split_words(_NUMBERING.sub("", line)))
