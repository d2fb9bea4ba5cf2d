"""Tells whether an answer is garbage and no text, by its characters or by what the model that wrote it thinks of it.

Five signs: the model's own perplexity; broken characters (replacement characters, UTF-8 read as another encoding, raw
pieces of tokens); words that mix scripts; words that follow themselves; and English words without the function words
that hold a sentence together, or with them where no sentence has them. Each has two thresholds, a number of places and
a share of the text, so that neither one odd word nor a few in a long text are enough.

The trade-off: word salad is told in English alone. It needs a list of function words and of what may not follow them,
and a wrong one calls good answers garbage.

Thresholds were chosen on one half of the answers of `bench.judge_answers` (851 answers that were labelled by hand, 611
of them bad). What is said of half and double below was then measured on all (`--thresholds`): of the bad ones 584 are
found with the thresholds as they are, and there is no false alarm.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from itertools import groupby, pairwise

from truetune.generation.identify_language import closest_language
from truetune.generation.split_words import DENSE, split_words_between_marks

# Half and double were not measured (the labelled answers have no log-probabilities), and lie between these too.
MAX_PERPLEXITY = 150.0
"""Of an answer under the model itself: greedy answers have 1 to 4 (SmolLM2-135M), those at a temperature of 1 up to
40, random weights thousands"""
# Chosen, not measured.
MIN_TOKENS = 8
"""Fewest tokens whose perplexity is told: of a few tokens one rare name decides"""
# Chosen for speed: garbage shows early. Half or double changes nothing.
MAX_CHARACTERS = 4000
"""That are looked at"""
# At 2 nothing changes; at 6 one broken answer is missed.
MIN_BROKEN_PLACES = 3
"""Broken places that are no accident"""
# Half or double changes nothing: answers with such words have many.
MIN_MIXED_WORDS, MIXED_SHARE = 3, 0.08
"""Words of two scripts, and their share of the words, that are no accident"""
# At half one bad answer more is found, at double 7 are missed (the second) or 1 (the first).
MIN_ROW_WORDS, MIN_ALL_ROW_WORDS = 5, 16
"""Words in a row without a mark between them, and words in such rows, of which some must be function words"""
# At double 4 are missed.
MIN_GLUED_ROW_WORDS, MIN_ALL_GLUED_ROW_WORDS = 3, 10
"""The same where words are glued together (`ofVisible`), which tells something itself"""
# At half 1 and 3 are missed; at double there is no false alarm on 240 good answers, which hold few lists, so that is
# not taken.
FUNCTION_WORD_SHARE, GLUED_FUNCTION_WORD_SHARE = 0.09, 0.15
"""Their least share in English prose, where it is 0.2 to 0.6; and where words are glued together"""
# Half or double changes nothing.
SURELY_ENGLISH_SHARE = 0.3
"""Their share in a text that is English, whatever it is like as a whole"""
# At half one bad answer more is found, at double 2 are missed; JavaScript and McDonald stand in prose.
GLUED_SHARE = 0.05
"""Share of words with a capital inside that is no prose"""
# At 6, 4 are missed.
MIN_STUTTERS = 3
"""Words that follow themselves, or stand where no sentence has them, that are no accident"""
# At double the second misses 2; the others change nothing.
STUTTER_SHARE, ONE_STUTTER_SHARE, MISPLACED_SHARE = 0.05, 0.06, 0.06
"""Their share of the words: of several words, of one word alone (`very very`), of words that are out of place"""
# With 2 repeats there are 3 false alarms, with 8, 3 bad answers are missed.
MIN_FOREIGN_WORDS, MIN_REPEATS, REPEATED_SHARE = 8, 4, 0.2
"""Words of an answer in other letters than its question, and how often, and which share of all, one of them stands: a
list of names has each once"""
SCRIPTS_APART = frozenset(
    [
        "LATIN",
        "CYRILLIC",
        "ARABIC",
        "HEBREW",
        "ARMENIAN",
        "GEORGIAN",
        "DEVANAGARI",
        "BENGALI",
        "TAMIL",
        "TELUGU",
        "KANNADA",
        "MALAYALAM",
        "GUJARATI",
        "GURMUKHI",
        "SINHALA",
        "ETHIOPIC",
    ]
)
"""Scripts that no word mixes; Greek stands in formulas, and Latin names in scripts without spaces"""
_FUNCTION_WORDS = (
    "the a an of and to in is are was were be been it its that this these those for on with as at"
    " by from or but not no if he she they we you i his her their our your my me him them us have"
    " has had do does did can could will would may might should must there here what which who when"
    " where why how all any some each more most other such than then so into about over after"
    " before between through during without under up out down only also very just because while"
)
CAPITAL_NAMES = frozenset("AI")
"""Capitals that may be names: `A is the father of B`"""
ENGLISH_FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
DETERMINERS = frozenset(["the", "a", "an", "my", "your", "our", "their", "every"])
PREPOSITIONS = frozenset(["of", "in", "at", "on", "to", "by", "from", "with", "for"])
_NOT_AFTER_DETERMINERS = (
    "but and or of in at on to by from with for is are was were will the a an you he she we they"
)
_NOT_AFTER_PREPOSITIONS = "but will would is are was were at"
NEVER_AFTER = {
    **dict.fromkeys(DETERMINERS, frozenset(_NOT_AFTER_DETERMINERS.split())),
    **dict.fromkeys(PREPOSITIONS, frozenset(_NOT_AFTER_PREPOSITIONS.split())),
}
"""English function words that no sentence has next to another"""
SOUND_CATEGORIES = ("Cf", "Zl", "Zp", "Zs")
"""Kinds of characters that are not printed and are no fault: joiners and spaces"""
_CUT_CHARACTER = re.compile("(?<!\ufffd)\ufffd{1,3}\\Z")
"""The bytes of a character that the limit has cut"""
_UTF8 = re.compile("[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_PIECE = re.compile(r"[ĠĊ](?=\w)|▁(?=\w)|<0x[0-9A-F]{2}>")
_WORD = re.compile(r"[^\W\d_]{2,}")
_ROW = re.compile(r"(?<![^\W\d_])[^\W\d_]+(?: {1,2}[^\W\d_]+)+")
_CODE = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`|^[^\n]*[;{}][ \t]*$|\S{40,}", re.DOTALL | re.MULTILINE
)
"""Code, also that of no fence, and data in base64"""
_GLUED = re.compile(r"[a-z][A-Z]")
_DENSE = re.compile(f"[{DENSE}]")


def answer_perplexity(logprob: float | None, tokens: int) -> float | None:
    """Perplexity of an answer; None where it is too short to tell.

    Args:
        logprob: the mean of its tokens, in nats.
        tokens: of the answer, stop token among them.
    """
    if logprob is None or tokens < MIN_TOKENS:
        return None
    # e^710 is no float; a broken model may be that sure of itself.
    return math.exp(min(-logprob, 500.0))


def is_garbage(text: str, language: str | None, perplexity: float | None = None) -> bool:
    """Is a text no text at all?

    Args:
        text: an answer.
        language: what it was found to be written in, if any.
        perplexity: that of the answer under the model that wrote it, where it is known.
    """
    # Written so that nan, of a model that computes nothing else, counts as garbage.
    if perplexity is not None and not perplexity < MAX_PERPLEXITY:
        return True
    return describe_garbage_characters(text, language) is not None


def describe_garbage_characters(text: str, language: str | None) -> str | None:
    """What makes a text garbage by its characters, in words; None where nothing does."""
    text = _CUT_CHARACTER.sub("", text[:MAX_CHARACTERS])
    for name, (find_places, share) in BROKEN_TEXTS.items():
        places = find_places(text)
        if len(places) >= MIN_BROKEN_PLACES and sum(map(len, places)) >= share * len(text):
            return name
    if _has_words_of_mixed_scripts(text):
        return "words of mixed scripts"
    prose = _CODE.sub(" ", text)
    if _has_doubled_words_in_several_places(prose):
        return "words that follow themselves"
    return "words without grammar" if _is_word_salad(prose, language) else None


def is_repeated_word_in_other_script(text: str, question: str) -> bool:
    """Is it in other letters than the question, and one word of it again and again? Names in other letters are often an
    answer, and repeat nothing; a text in another language is told by `answers_in_wrong_language`."""
    question_words = _WORD.findall(question)
    words = _WORD.findall(text[:MAX_CHARACTERS])
    question_scripts = {_script_name(word[0]) for word in question_words}
    scripts = {_script_name(word[0]) for word in words}
    if not question_scripts or len(words) < MIN_FOREIGN_WORDS or question_scripts & scripts:
        return False
    ((_, times),) = Counter(word.casefold() for word in words).most_common(1)
    return times >= MIN_REPEATS and times >= REPEATED_SHARE * len(words)


def _broken_characters(text: str) -> list[str]:
    """Replacement and control characters, and those that Unicode has not given out."""
    return [character for character in text if _is_broken_character(character)]


@cache
def _is_broken_character(character: str) -> bool:
    """Is a character a replacement or control character, or one that Unicode has not given out?"""
    if character == "\ufffd":
        return True
    is_sound = character.isprintable() or character in "\n\t\r\f"
    return not is_sound and unicodedata.category(character) not in SOUND_CATEGORIES


@cache
def _characters_that_stand_for_bytes() -> dict[int, int]:
    """Characters that stand for a byte, for `str.translate`: in Windows-1252, and in the pieces of byte-level BPE."""
    table: dict[int, int] = {}
    for byte in range(0x80, 0xA0):
        character = bytes([byte]).decode("cp1252", "ignore")
        if character:
            table[ord(character)] = byte
    # GPT-2's table gives the bytes that print nothing the characters from U+0100 on, in their order.
    hidden = [*range(0x21), *range(0x7F, 0xA1), 0xAD]
    return table | {0x100 + i: byte for i, byte in enumerate(hidden)}


def _characters_of_misread_utf8(text: str) -> list[str]:
    """Characters whose bytes are UTF-8 that was read as another encoding: `Ã©`."""
    return _UTF8.findall(text.translate(_characters_that_stand_for_bytes()))


# The shares are chosen, not measured: one broken character in a hundred is seen at once; what the other two look for
# may stand in names and in texts on encodings.
BROKEN_TEXTS: dict[str, tuple[Callable[[str], list[str]], float]] = {
    "broken characters": (_broken_characters, 0.01),
    "UTF-8 read as another encoding": (_characters_of_misread_utf8, 0.05),
    "pieces of tokens": (_PIECE.findall, 0.05),
}
"""Where a text is broken, and the least share of its characters"""


def _has_words_of_mixed_scripts(text: str) -> bool:
    """Do some of its words have letters of two scripts?"""
    words = _WORD.findall(text)
    mixed = sum(_has_letters_of_two_scripts(word) for word in words if not word.isascii())
    return mixed >= MIN_MIXED_WORDS and mixed >= MIXED_SHARE * len(words)


def _has_letters_of_two_scripts(word: str) -> bool:
    """Does a word have letters of two scripts?"""
    return len({_script_name(character) for character in word} & SCRIPTS_APART) > 1


@cache
def _script_name(character: str) -> str:
    """The first word of its name in Unicode, which for a letter is its script."""
    return unicodedata.name(character, "").partition(" ")[0]


def _is_word_salad(text: str, language: str | None) -> bool:
    """Are there whole rows of English words, and hardly one that holds a sentence together, or many out of place?"""
    # Rows end at marks: lists of words with commas between them have none that is long.
    all_rows = [row.split() for row in _ROW.findall(text)]
    are_glued = _are_words_glued_together(all_rows)
    # Glued words tell something themselves: then fewer of them are enough.
    min_row, min_all, share = MIN_ROW_WORDS, MIN_ALL_ROW_WORDS, FUNCTION_WORD_SHARE
    if are_glued:
        min_row, min_all = MIN_GLUED_ROW_WORDS, MIN_ALL_GLUED_ROW_WORDS
        share = GLUED_FUNCTION_WORD_SHARE
    rows = [row for row in all_rows if len(row) >= min_row]
    words = [word for row in rows for word in row]
    if len(words) < min_all:
        return False
    function_words = _count_english_function_words(words)
    # Salad of English words is like no language: the closest one is the best that can be known of it.
    is_surely_english = function_words >= SURELY_ENGLISH_SHARE * len(words)
    if not is_surely_english and (language or closest_language(text)) != "en":
        return False
    return function_words < share * len(words) or _are_function_words_misplaced(rows, len(words))


def _count_english_function_words(words: Sequence[str]) -> int:
    """How many of some words are English function words."""
    return sum(word.casefold() in ENGLISH_FUNCTION_WORDS for word in words)


def _are_words_glued_together(rows: Sequence[Sequence[str]]) -> bool:
    """Are words glued together, as tokens are that were drawn by chance?"""
    words = [word for row in rows for word in row]
    glued = sum(bool(_GLUED.search(word)) for word in words)
    return glued >= GLUED_SHARE * max(1, len(words))


def _are_function_words_misplaced(rows: Sequence[Sequence[str]], count: int) -> bool:
    """Do function words stand where no English sentence has them? `count` is the number of words in all rows."""
    wrong = 0
    for row in rows:
        for first, second in pairwise(row):
            follows = NEVER_AFTER.get(first.casefold(), frozenset())
            wrong += first not in CAPITAL_NAMES and second.casefold() in follows
    return wrong >= MIN_STUTTERS and wrong >= MISPLACED_SHARE * count


def _has_doubled_words_in_several_places(text: str) -> bool:
    """Do words follow themselves, in several places? Laughter does in one, and some languages double for emphasis."""
    count, doubled = 0, Counter[str]()
    for stretch in split_words_between_marks(text.casefold()):
        words = [word for word in stretch if word.isalpha() and not _DENSE.match(word)]
        count += len(words)
        doubled.update(word for word, again in groupby(words) if len(list(again)) > 1)
    times = doubled.total()
    share = STUTTER_SHARE if len(doubled) > 1 else ONE_STUTTER_SHARE
    return times >= MIN_STUTTERS and count >= MIN_ALL_ROW_WORDS and times >= share * count
