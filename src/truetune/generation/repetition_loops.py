"""Tells whether a text ends in the same words over and over, or holds such a loop inside.

A loop at the end is found in every text. Inside of an answer that continues to an end of its own, three things are one:
a run of the same words without a mark between them ("equals equals equals equals"), a phrase many times that fills much
of the answer, and lines of which few are different.

The trade-off: refrains, tables, lists, laughter and code repeat themselves too, so each sign needs more rounds, more
letters or a larger share than these have; loops of two or three rounds are missed. An answer that was cut at the limit
needs less than one that stopped, for it was continuing.

Thresholds were chosen on one half of the answers of `bench.judge_answers` (851 answers that were labelled by hand, 611
of them bad). What is said of half and double below was then measured on all (`--thresholds`): of the bad ones 584 are
found with the thresholds as they are, and there is no false alarm. Where a bad answer more is found at half and the
value stays, it is for what those answers hardly hold: songs, tables and code.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from truetune.generation.split_words import (
    DENSE,
    count_words_of_units,
    is_word,
    split_units,
    split_words,
    split_words_between_marks,
)

# Chosen for speed: each period is tried on them. Half or double changes nothing.
MAX_UNITS = 1000
"""Units (words and marks) of the end of a text that are looked at"""
# At half one loop is missed.
MAX_UNFINISHED_UNITS = 4
"""At its end that may be the beginning of a word, or a mark behind the last round"""
# At double one is missed.
MIN_END_SPACES = 40
"""Characters of white space at the end that are a loop"""
# Half or double changes nothing.
MIN_LOOP_MARKS = 100
"""Units of a loop without letters (a rule of dashes may have 80)"""
# At double of the first 22 are missed, of the second 5.
MIN_RUN_MARKS, MARKS_SHARE = 24, 1 / 3
"""The same where they are much of the answer: `?????`, `2 2 2 2`, `0000`; digits in rounds of three are numbers"""
# At half of the second one bad answer more is found; a song's refrain fills as much.
THREE_ROUNDS_SHARE, FOUR_ROUNDS_SHARE = 0.9, 0.8
"""Shares of an answer that stopped, which a loop of three rounds, or of four, must fill"""
# At 2 rounds 2 more are found, at 8, 38 are missed.
MIN_ROUNDS, MIN_DENSE_ROUNDS = 4, 6
"""Rounds of words without a mark between them; of scripts without spaces, where words are doubled for emphasis"""
# At half there is a false alarm, at double 8 are missed.
MIN_RUN_LETTERS = 16
"""Letters of such a run: `ha ha ha ha` and `no no no no` are said by people"""
# At 3 rounds 4 more are found, at 12, 3 are missed.
LONG_LOOP_ROUNDS, LONG_LOOP_LETTERS = 6, 36
"""Rounds and letters of a loop of few but long words"""
# At half of the first one bad answer more is found, at double of the second one is missed.
CUT_LOOP_WORDS, CUT_THREE_ROUNDS_WORDS = 12, 30
"""Words of a loop at the end of an answer that was cut, of four rounds and more, or of three"""
# At double of each one is missed.
LINE_LOOP_ROUNDS, LINE_LOOP_LETTERS, LINE_LOOP_SHARE = 8, 28, 0.7
"""Rounds, letters and share of a loop of short lines (`صحتي؟`, `保持！`) in an answer that stopped"""
# Half or double changes nothing; the test on songs (tests/generation/test_score_answer.py) holds it above a refrain.
HALF_LOOP_WORDS, HALF_LOOP_SHARE = 24, 0.5
"""Words and share of a loop of as many rounds that is half of an answer that stopped: a refrain comes four times"""
# At 2 rounds 2 more are found, at 10 one is missed.
CUT_LOOP_ROUNDS, CUT_LOOP_LETTERS = 5, 36
"""Rounds and letters of a loop that is most of an answer that was cut, two long words a round"""
# At double one is missed.
WHOLE_LOOP_ROUNDS, WHOLE_LOOP_LETTERS, WHOLE_LOOP_SHARE = 6, 24, 0.95
"""The same of one that is nothing else: laughter has two letters a round"""
OPEN_ENDS = (",", "，", "、", "،", ";", ":", "：", "(")
"""Marks that no answer ends in: behind them it was cut"""
# At half of the second one more is found, at double one is missed.
THIRD_ROUND_UNITS, SENTENCE_WORDS = 2, 8.0
"""Units of the third round, and words of one, from which an answer that was cut there is a loop"""
# At double of any 3 to 5 are missed.
DENSE_PHRASE, LONG_DENSE_PHRASE, DENSE_SHARE = 4, 6, 0.55
"""Different characters of a phrase without spaces that comes again, characters from which three rounds are enough,
and the share of all behind its first place that they fill"""
# Half or double changes nothing: longer rounds have marks in them, and are phrases.
MAX_PERIOD = 8
"""Words of one round, at most"""
# At half of the first two 2 more are found each, at double of the last 4 are missed.
PHRASE_WORDS, PHRASE_ROUNDS, PHRASE_SHARE = 3, 6, 0.3
"""Words of a phrase with marks in it, its rounds, and the share of the answer that they fill"""
# Half or double changes nothing: most copied lines are runs or phrases already.
MIN_LINES, DIFFERENT_LINES_SHARE = 6, 1 / 3
"""Lines of some words, and the share of them that is different where the others are copies"""
MARKUP = ("[", "{", "<")
"""What an answer begins with that is JSON, HTML or XML: these repeat keys and values by nature"""
_CLOSED = re.compile(r"```.*?```", re.DOTALL)
_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_STAMMER = re.compile(r"([^\W\d_]{3,8})\1{3,}")
"""Parts of a word again and again; laughter has two letters"""
_DENSE = re.compile(f"[{DENSE}]")
# An odd number with many bits set, so that phrases spread over all 64 bits (Knuth, golden ratio).
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_NUMBERING = re.compile(r"^\s{0,40}(?:\d+[.):]|[-*•])\s*", re.MULTILINE)


def is_looping(text: str, *, cut: bool) -> bool:
    """Does it end in the same words over and over, or hold them so? The numbers of a list aside.

    An answer that was cut at the limit, or that ends in no mark, needs four rounds of 12 words in all, or three of
    30. The refrain of a song comes four times: in one that stopped a loop needs eight rounds that are half of it, or
    must be nearly all of it.

    Args:
        text: an answer.
        cut: it was cut at the limit.
    """
    if len(text) - len(text.rstrip()) >= MIN_END_SPACES or _is_run_of_marks(text):
        return True
    # The limit may cut a character into replacement characters. Code in fences is looked at where it was cut: a loop
    # inside of it never reaches the closing fence.
    text = (text if cut else _CLOSED.sub("\n", text)).rstrip("\ufffd")
    cut = cut or text.rstrip()[-1:].isalnum() or text.rstrip().endswith(OPEN_ENDS)
    if not cut and text.lstrip()[:1] in MARKUP:
        return False
    units = split_units(_NUMBERING.sub("", text))[-MAX_UNITS:]
    if _ends_in_loop(units, cut=cut):
        return True
    return (cut and _is_loop_in_spaceless_script(units)) or _repeats_inside(text)


def _ends_in_loop(units: Sequence[str], *, cut: bool) -> bool:
    """Is there a loop at the end, or just before what may be unfinished there?"""
    for end in range(len(units), max(0, len(units) - MAX_UNFINISHED_UNITS), -1):
        for period in range(1, end // 2 + 1):
            # Most periods fail at the first unit: that makes the search fast enough for every answer.
            if units[end - 1] != units[end - 1 - period]:
                continue
            length = _periodic_length(units, end, period)
            loop, share = units[end - length : end], length / len(units)
            if length >= 3 * period and _is_loop(loop, length / period, share, cut):
                return True
            if cut and share >= FOUR_ROUNDS_SHARE and _is_cut_in_third_round(loop, period):
                return True
    return False


def _is_cut_in_third_round(loop: Sequence[str], period: int) -> bool:
    """Was it cut in the third round of a long sentence, or of some?"""
    begun = len(loop) - 2 * period
    return begun >= THIRD_ROUND_UNITS and count_words_of_units(loop[:period]) >= SENTENCE_WORDS


def _is_loop_in_spaceless_script(units: Sequence[str]) -> bool:
    """In a script without spaces: does one phrase fill most of what follows it, in rounds that differ by a particle?"""
    for length, phrase in _repeated_phrases_of_spaceless_script(units):
        rounds = _min_loop_rounds_of_spaceless_phrase(length)
        places = _places_of_phrase(units, phrase)
        filled = len(places) * length
        if len(places) >= rounds and filled >= DENSE_SHARE * (len(units) - places[0]):
            return filled >= PHRASE_SHARE * len(units)
    return False


def _min_loop_rounds_of_spaceless_phrase(length: int) -> int:
    """Rounds from which a phrase of so many characters is a loop."""
    return MIN_ROUNDS if length < LONG_DENSE_PHRASE else 3


def _repeated_phrases_of_spaceless_script(
    units: Sequence[str],
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """(length, phrase) of each phrase of characters without spaces that comes often enough, the shorter ones first.

    A number stands for each phrase, made of that of the phrase which is shorter by one character. With the phrases
    themselves, an answer of a thousand words took several seconds.
    """
    is_dense = np.array([_DENSE.match(unit) is not None for unit in units], np.bool_)
    longest = _longest_run(is_dense)
    numbers = {unit: number for number, unit in enumerate(dict.fromkeys(units), 1)}
    ids = np.array([numbers[unit] for unit in units], np.uint64)
    hashes, dense = ids.copy(), is_dense.copy()
    for length in range(2, min(longest, len(units) // 3) + 1):
        # Overflow is meant: the number only has to differ where the phrases do, and each hit is compared afterwards.
        hashes = hashes[:-1] * _HASH_FACTOR + ids[length - 1 :]
        dense = dense[:-1] & is_dense[length - 1 :]
        if length < DENSE_PHRASE:
            continue
        at = np.flatnonzero(dense)
        _, first, counts = np.unique(hashes[at], return_index=True, return_counts=True)
        for number in np.sort(first[counts >= _min_loop_rounds_of_spaceless_phrase(length)]):
            phrase = tuple(units[at[number] : at[number] + length])
            if len(set(phrase)) >= DENSE_PHRASE:
                yield length, phrase


def _longest_run(flags: NDArray[np.bool_]) -> int:
    """The length of the longest run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8)))
    return int((edges[1::2] - edges[::2]).max()) if edges.size else 0


def _places_of_phrase(units: Sequence[str], phrase: tuple[str, ...]) -> list[int]:
    """Where a phrase stands, without overlaps."""
    places, at = list[int](), 0
    while at <= len(units) - len(phrase):
        if tuple(units[at : at + len(phrase)]) == phrase:
            places.append(at)
            at += len(phrase)
        else:
            at += 1
    return places


def _is_loop(loop: Sequence[str], rounds: float, share: float, cut: bool) -> bool:
    """Is what repeats itself at the end of an answer more than people repeat?

    Args:
        loop: its units, all rounds.
        rounds: how often, at least 3.
        share: of the answer that it fills, 0 to 1.
        cut: the answer was cut.
    """
    words, letters = count_words_of_units(loop), _weighted_letters(loop)
    fills_answer = share >= (FOUR_ROUNDS_SHARE if rounds >= MIN_ROUNDS else THREE_ROUNDS_SHARE)
    if fills_answer and words / rounds >= PHRASE_WORDS:
        return True
    is_long = rounds >= WHOLE_LOOP_ROUNDS and letters >= WHOLE_LOOP_LETTERS
    if is_long and share >= WHOLE_LOOP_SHARE:
        return True
    if cut:
        return _is_loop_of_cut_answer(loop, rounds, share)
    is_of_lines = letters >= LINE_LOOP_LETTERS and share >= LINE_LOOP_SHARE
    is_half = words >= HALF_LOOP_WORDS and share >= HALF_LOOP_SHARE
    return rounds >= LINE_LOOP_ROUNDS and (is_of_lines or is_half)


def _is_loop_of_cut_answer(loop: Sequence[str], rounds: float, share: float) -> bool:
    """The same of an answer that was cut, where less is enough."""
    words, letters = count_words_of_units(loop), _weighted_letters(loop)
    is_long = rounds >= CUT_LOOP_ROUNDS and letters >= CUT_LOOP_LETTERS
    if is_long and share >= FOUR_ROUNDS_SHARE:
        return True
    if words == 0:
        return len(loop) >= MIN_LOOP_MARKS
    min_words = CUT_LOOP_WORDS if rounds >= MIN_ROUNDS else CUT_THREE_ROUNDS_WORDS
    return words >= min_words or (rounds >= LONG_LOOP_ROUNDS and letters >= LONG_LOOP_LETTERS)


def _periodic_length(units: Sequence[str], end: int, period: int) -> int:
    """Length of the longest range before `end` that repeats after `period` units."""
    at = end - 1
    while at >= period and units[at] == units[at - period]:
        at -= 1
    return end - 1 - at + period


def _is_run_of_marks(text: str) -> bool:
    """Is the end, and much of the text, a few marks or digits again and again on one line, and no table's rule?"""
    text = text.rstrip("\ufffd")
    whole, line = ("".join(part.split()) for part in (text, text.rpartition("\n")[2]))
    if any(
        _ends_in_repeated_marks(line, period, len(whole)) for period in range(1, MAX_PERIOD + 1)
    ):
        return True
    # One mark over many lines too; digits stand below each other in tables.
    has_digit = any(map(str.isdigit, whole[-MIN_RUN_MARKS:]))
    return not has_digit and _ends_in_repeated_marks(whole, 1, len(whole))


def _ends_in_repeated_marks(line: str, period: int, whole: int) -> bool:
    """Does a line end in rounds of `period` marks that are much of an answer of `whole` characters?"""
    at = len(line) - 1
    while at >= period and line[at] == line[at - period]:
        at -= 1
    run = line[max(0, at - period + 1) :]
    if len(run) < MIN_RUN_MARKS or len(run) < MARKS_SHARE * whole or "|" in run:
        return False
    # Rounds of three and more may not hold digits either: those are numbers.
    is_text = str.isalpha if period < 3 else str.isalnum
    return not any(map(is_text, run))


def _repeats_inside(text: str) -> bool:
    """Does it repeat itself anywhere, more than a song does? Code in fences and JSON are left out."""
    bare = _FENCED.sub("\n", text).strip()
    if bare[:1] in MARKUP:
        return False
    if _STAMMER.search(bare):
        return True
    return (
        any(map(_has_run_of_repeated_words, split_words_between_marks(bare)))
        or _is_much_one_repeated_phrase(bare)
        or _is_mostly_copied_lines(bare)
    )


def _has_run_of_repeated_words(units: Sequence[str]) -> bool:
    """Are some words in it said again and again, one round after the other?"""
    # Most stretches are shorter than the rounds of any longer period.
    for period in range(1, min(MAX_PERIOD, len(units) // MIN_ROUNDS) + 1):
        length = 0
        for at in range(period, len(units)):
            length = length + 1 if units[at] == units[at - period] else 0
            if length < (MIN_ROUNDS - 1) * period:
                continue
            run = units[at - length - period + 1 : at + 1]
            if _is_run_beyond_emphasis(run, len(run) / period):
                return True
    return False


def _is_run_beyond_emphasis(run: Sequence[str], rounds: float) -> bool:
    """Is it more than laughter or emphasis?"""
    is_dense = any(_DENSE.match(unit) for unit in run)
    # One character many times is laughter (哈哈哈哈).
    if is_dense and len(set(run)) == 1:
        return False
    min_rounds = MIN_DENSE_ROUNDS if is_dense else MIN_ROUNDS
    return rounds >= min_rounds and _weighted_letters(run) >= MIN_RUN_LETTERS


def _weighted_letters(units: Sequence[str]) -> int:
    """Letters of some words; one of a script without spaces counts as three."""
    return sum(len(unit) * (3 if _DENSE.match(unit) else 1) for unit in units if unit[0].isalpha())


def _is_much_one_repeated_phrase(text: str) -> bool:
    """Is much of it one phrase, with its marks, in one round after the other?"""
    units = split_units(_NUMBERING.sub("", text))[:MAX_UNITS]
    numbers = {unit: number for number, unit in enumerate(dict.fromkeys(units))}
    ids = np.array([numbers[unit] for unit in units], np.int64)
    for period in range(PHRASE_WORDS, len(units) // PHRASE_ROUNDS + 1):
        min_length = max((PHRASE_ROUNDS - 1) * period, PHRASE_SHARE * len(units) - period)
        # Nearly every period ends here: read unit by unit, each text took 6 ms.
        if np.count_nonzero(ids[period:] == ids[:-period]) < min_length:
            continue
        length = 0
        for at in range(period, len(units)):
            length = length + 1 if units[at] == units[at - period] else 0
            if length < min_length:
                continue
            last_round = units[at - period + 1 : at + 1]
            if sum(is_word(unit) and unit[0].isalpha() for unit in last_round) >= PHRASE_WORDS:
                return True
    return False


def _is_mostly_copied_lines(text: str) -> bool:
    """Are its lines copies of a few of them?"""
    lines = Counter(map(_words_of_line_without_number, text.splitlines()))
    worded = {
        line: count for line, count in lines.items() if count_words_of_units(line) >= PHRASE_WORDS
    }
    total = sum(worded.values())
    return total >= MIN_LINES and len(worded) <= DIFFERENT_LINES_SHARE * total


def _words_of_line_without_number(line: str) -> tuple[str, ...]:
    """The words of a line, without its number in a list."""
    return tuple(split_words(_NUMBERING.sub("", line)))
