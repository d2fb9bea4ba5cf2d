"""Garbage: is an answer no text at all, by its characters, or by what the model that wrote it thinks of it?"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from itertools import groupby, pairwise

from truetune.generation.identify_language import closest_language
from truetune.generation.split_words import DENSE, split_stretches

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
RUN, ROW = 5, 16
SHORT_RUN, SHORT_ROW = 3, 10
"""Words in a row without a mark between them, and words in such rows, of which some must be function words; fewer
are enough where words are glued together (`ofVisible`)"""
FUNCTION, GLUED = 0.09, 0.15
"""Their least share in English prose, where it is 0.2 to 0.6; and where words are glued together"""
SURELY = 0.3
"""Their share in a text that is English, whatever it is like as a whole"""
CAPITALS = 0.05
"""Share of words with a capital inside that is no prose"""
STUTTERS = 3
"""Words that follow themselves, or stand where no sentence has them, that are no accident"""
STUTTER, ONE_STUTTER, MISPLACED = 0.05, 0.06, 0.06
"""Their share of the words: of several words, of one word alone (`very very`), of words that are out of place"""
FEW_WORDS, AGAIN, OFTEN = 8, 4, 0.2
"""Words of an answer in other letters than its question, and how often, and which share of all, one of them stands: a
list of names has each once"""
APART = frozenset((
    "LATIN", "CYRILLIC", "ARABIC", "HEBREW", "ARMENIAN", "GEORGIAN", "DEVANAGARI", "BENGALI", "TAMIL", "TELUGU",
    "KANNADA", "MALAYALAM", "GUJARATI", "GURMUKHI", "SINHALA", "ETHIOPIC",
))  # fmt: skip
"""Scripts that no word mixes; Greek stands in formulas, and Latin names in scripts without spaces"""
_FUNCTION_WORDS = (
    "the a an of and to in is are was were be been it its that this these those for on with as at"
    " by from or but not no if he she they we you i his her their our your my me him them us have"
    " has had do does did can could will would may might should must there here what which who when"
    " where why how all any some each more most other such than then so into about over after"
    " before between through during without under up out down only also very just because while"
)
LETTERS = frozenset("AI")
"""Capitals that may be names: `A is the father of B`"""
ENGLISH = frozenset(_FUNCTION_WORDS.split())
DETERMINERS = frozenset(["the", "a", "an", "my", "your", "our", "their", "every"])
PREPOSITIONS = frozenset(["of", "in", "at", "on", "to", "by", "from", "with", "for"])
_AFTER_DETERMINERS = (
    "but and or of in at on to by from with for is are was were will the a an you he she we they"
)
_AFTER_PREPOSITIONS = "but will would is are was were at"
NEVER_AFTER = {
    **dict.fromkeys(DETERMINERS, frozenset(_AFTER_DETERMINERS.split())),
    **dict.fromkeys(PREPOSITIONS, frozenset(_AFTER_PREPOSITIONS.split())),
}
"""English function words that no sentence has next to another"""
SOUND = ("Cf", "Zl", "Zp", "Zs")
"""Kinds of characters that are not printed and are no fault: joiners and spaces"""
_CUT = re.compile("(?<!\ufffd)\ufffd{1,3}\\Z")
"""The bytes of a character that the limit has cut"""
_UTF8 = re.compile("[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_PIECE = re.compile(r"[ĠĊ](?=\w)|▁(?=\w)|<0x[0-9A-F]{2}>")
_WORD = re.compile(r"[^\W\d_]{2,}")
_ROW = re.compile(r"[^\W\d_]+(?: {1,2}[^\W\d_]+)+")
_CODE = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`|^[^\n]*[;{}][ \t]*$|\S{40,}", re.DOTALL | re.MULTILINE
)
"""Code, also that of no fence, and data in base64"""
_GLUED = re.compile(r"[a-z][A-Z]")
_DENSE = re.compile(f"[{DENSE}]")


def answer_perplexity(logprob: float | None, tokens: int) -> float | None:
    """Of an answer whose tokens have a mean log-probability, in nats; None where it is too short to tell."""
    return math.exp(min(-logprob, 500.0)) if logprob is not None and tokens >= TOKENS else None


def is_garbage(text: str, language: str | None, perplexity: float | None = None) -> bool:
    """`language` is what the text was found to be written in, if any."""
    return (perplexity is not None and not perplexity < PERPLEXITY) or find_garbage(
        text, language
    ) is not None


def find_garbage(text: str, language: str | None) -> str | None:
    """What makes a text garbage by its characters; None where nothing does."""
    text = _CUT.sub("", text[:ENOUGH])
    for name, (places, share) in FAULTS.items():
        found = places(text)
        if len(found) >= FEWEST and sum(map(len, found)) >= share * len(text):
            return name
    if _is_mixed(text):
        return "words of mixed scripts"
    prose = _CODE.sub(" ", text)
    if _has_stutter(prose):
        return "words that follow themselves"
    return "words without grammar" if _is_salad(prose, language) else None


def is_foreign_stutter(text: str, question: str) -> bool:
    """Is it in other letters than the question, and one word of it again and again? Names in other letters are often an
    answer, and repeat nothing; a text in another language is told by `mixing`."""
    asked, said = _WORD.findall(question), _WORD.findall(text[:ENOUGH])
    asked_in, said_in = (
        Counter(_script_name(word[0]) for word in found if word) for found in (asked, said)
    )
    if not asked_in or len(said) < FEW_WORDS or set(asked_in) & set(said_in):
        return False
    ((_, times),) = Counter(word.casefold() for word in said).most_common(1)
    return times >= AGAIN and times >= OFTEN * len(said)


def _broken_characters(text: str) -> list[str]:
    """Replacement and control characters, and those that Unicode has not given out."""
    return [
        c
        for c in text
        if c == "\ufffd"
        or not (c.isprintable() or c in "\n\t\r\f" or _character_category(c) in SOUND)
    ]


@cache
def _character_category(c: str) -> str:
    return unicodedata.category(c)


@cache
def _byte_characters() -> dict[int, int]:
    """Characters that stand for a byte: in Windows-1252, and in the pieces of byte-level BPE."""
    windows = {
        ord(c): byte
        for byte in range(0x80, 0xA0)
        if (c := bytes([byte]).decode("cp1252", "ignore"))
    }
    hidden = [*range(0x21), *range(0x7F, 0xA1), 0xAD]
    return windows | {256 + i: byte for i, byte in enumerate(hidden)}


FAULTS: dict[str, tuple[Callable[[str], list[str]], float]] = {
    "broken characters": (_broken_characters, 0.01),
    "UTF-8 read as another encoding": (
        lambda text: _UTF8.findall(text.translate(_byte_characters())),
        0.05,
    ),
    "pieces of tokens": (_PIECE.findall, 0.05),
}
"""Where a text is broken, and the least share of its characters"""


def _is_mixed(text: str) -> bool:
    words = _WORD.findall(text)
    mixed = sum(
        len({_script_name(c) for c in word} & APART) > 1 for word in words if not word.isascii()
    )
    return mixed >= WORDS and mixed >= MIXED * len(words)


@cache
def _script_name(c: str) -> str:
    return unicodedata.name(c, "").partition(" ")[0]


def _is_salad(text: str, language: str | None) -> bool:
    """Are there whole rows of English words, and hardly one that holds a sentence together, or many out of place?"""
    all_rows = [found.split() for found in _ROW.findall(text)]
    glued = _is_glued(all_rows)
    rows = [row for row in all_rows if len(row) >= (SHORT_RUN if glued else RUN)]
    words = [word for row in rows for word in row]
    if len(words) < (SHORT_ROW if glued else ROW):
        return False
    known = sum(word.casefold() in ENGLISH for word in words)
    if known < SURELY * len(words) and (language or closest_language(text)) != "en":
        return False
    return known < (GLUED if glued else FUNCTION) * len(words) or _is_misplaced(rows, len(words))


def _is_glued(rows: Sequence[Sequence[str]]) -> bool:
    """Are words glued together, as tokens are that were drawn by chance?"""
    words = [word for row in rows for word in row]
    return sum(bool(_GLUED.search(word)) for word in words) >= CAPITALS * max(1, len(words))


def _is_misplaced(rows: Sequence[Sequence[str]], count: int) -> bool:
    """Do function words stand where no English sentence has them?"""
    pairs = [
        (a.casefold(), b.casefold()) for row in rows for a, b in pairwise(row) if a not in LETTERS
    ]
    wrong = sum(b in NEVER_AFTER.get(a, ()) for a, b in pairs)
    return wrong >= STUTTERS and wrong >= MISPLACED * count


def _has_stutter(text: str) -> bool:
    """Do words follow themselves, in several places? Laughter does in one, and some languages double for emphasis."""
    count, doubled = 0, Counter[str]()
    for stretch in split_stretches(text.casefold()):
        words = [word for word in stretch if word.isalpha() and not _DENSE.match(word)]
        count += len(words)
        doubled.update(word for word, again in groupby(words) if len(list(again)) > 1)
    times = doubled.total()
    several = len(doubled) > 1 and times >= STUTTER * count
    return times >= STUTTERS and count >= ROW and (several or times >= ONE_STUTTER * count)
