"""Garbage: is an answer no text at all, by its characters, or by what the model that wrote it thinks of it?"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable
from functools import cache

PERPLEXITY = 150.0
"""Of an answer under the model itself: greedy answers have 1 to 4 (SmolLM2-135M), those at a temperature of 1 up to 40,
random weights thousands"""
TOKENS = 8
"""Fewest tokens whose perplexity is told"""
ENOUGH = 4000
"""Characters that are looked at"""
FEWEST = 3
"""Broken places that are no accident"""
WORDS, MIXED = 3, 0.08
"""Words of two scripts, and their share of the words, that are no accident"""
RUN, ROW = 6, 16
"""Words in a row without a mark between them, and words in such rows, of which some must be function words"""
FUNCTION = 0.03
"""Their least share in English prose, where it is 0.3 to 0.5"""
APART = frozenset((
    "LATIN", "CYRILLIC", "ARABIC", "HEBREW", "ARMENIAN", "GEORGIAN", "DEVANAGARI", "BENGALI", "TAMIL", "TELUGU",
    "KANNADA", "MALAYALAM", "GUJARATI", "GURMUKHI", "SINHALA", "ETHIOPIC",
))  # fmt: skip
"""Scripts that no word mixes; Greek stands in formulas, and Latin names in scripts without spaces"""
_FUNCTION_WORDS = (
    "the a an of and to in is are was were be been it its that this these those for on with as at by from or but not "
    "no if he she they we you i his her their our your my me him them us have has had do does did can could will would "
    "may might should must there here what which who when where why how all any some each more most other such than "
    "then so into about over after before between through during without under up out down only also very just because "
    "while"
)
ENGLISH = frozenset(_FUNCTION_WORDS.split())
SOUND = ("Cf", "Zl", "Zp", "Zs")
"""Kinds of characters that are not printed and are no fault: joiners and spaces"""
_CUT = re.compile("(?<!\ufffd)\ufffd{1,3}\\Z")
"""The bytes of a character that the limit has cut"""
_UTF8 = re.compile("[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_PIECE = re.compile(r"[ĠĊ](?=\w)|▁(?=\w)|<0x[0-9A-F]{2}>")
_WORD = re.compile(r"[^\W\d_]{2,}")
_ROW = re.compile(r"[^\W\d_]+(?: {1,2}[^\W\d_]+)+")


def perplexity_of(logprob: float | None, tokens: int) -> float | None:
    """Of an answer whose tokens have a mean log-probability, in nats; None where it is too short to tell."""
    return math.exp(min(-logprob, 500.0)) if logprob is not None and tokens >= TOKENS else None


def is_garbage(text: str, language: str | None, perplexity: float | None = None) -> bool:
    """`language` is what the text was found to be written in, if any."""
    return (perplexity is not None and not perplexity < PERPLEXITY) or fault(text, language) is not None


def fault(text: str, language: str | None) -> str | None:
    """What makes a text garbage by its characters; None where nothing does."""
    text = _CUT.sub("", text[:ENOUGH])
    for name, (places, share) in FAULTS.items():
        found = places(text)
        if len(found) >= FEWEST and sum(map(len, found)) >= share * len(text):
            return name
    if _is_mixed(text):
        return "words of mixed scripts"
    return "words without grammar" if language == "en" and _is_salad(text) else None


def _broken(text: str) -> list[str]:
    """Replacement and control characters, and those that Unicode has not given out."""
    return [c for c in text if c == "\ufffd" or not (c.isprintable() or c in "\n\t\r\f" or _kind(c) in SOUND)]


@cache
def _kind(c: str) -> str:
    return unicodedata.category(c)


@cache
def _bytes() -> dict[int, int]:
    """Characters that stand for a byte: in Windows-1252, and in the pieces of byte-level BPE."""
    windows = {ord(c): byte for byte in range(0x80, 0xA0) if (c := bytes([byte]).decode("cp1252", "ignore"))}
    hidden = [*range(0x21), *range(0x7F, 0xA1), 0xAD]
    return windows | {256 + i: byte for i, byte in enumerate(hidden)}


FAULTS: dict[str, tuple[Callable[[str], list[str]], float]] = {
    "broken characters": (_broken, 0.01),
    "UTF-8 read as another encoding": (lambda text: _UTF8.findall(text.translate(_bytes())), 0.05),
    "pieces of tokens": (_PIECE.findall, 0.05),
}
"""Where a text is broken, and the least share of its characters"""


def _is_mixed(text: str) -> bool:
    words = _WORD.findall(text)
    mixed = sum(len({_script(c) for c in word} & APART) > 1 for word in words if not word.isascii())
    return mixed >= WORDS and mixed >= MIXED * len(words)


@cache
def _script(c: str) -> str:
    return unicodedata.name(c, "").partition(" ")[0]


def _is_salad(text: str) -> bool:
    """Are there whole rows of words, and hardly one that holds a sentence together?"""
    rows = [row for found in _ROW.findall(text) if len(row := found.casefold().split()) >= RUN]
    words = [word for row in rows for word in row]
    return len(words) >= ROW and sum(word in ENGLISH for word in words) < FUNCTION * len(words)
