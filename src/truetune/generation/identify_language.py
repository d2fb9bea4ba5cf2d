"""The language of a text, by py3langid; told only where there is enough of it."""

from __future__ import annotations

import importlib
import re
import unicodedata
from functools import cache
from typing import Any

from truetune.generation.split_words import IDEOGRAPHS

LETTERS = 40
"""Fewest letters, where a letter of a script that writes syllables or words with one counts as three"""
ENOUGH = 4000
"""Characters of a text that are looked at"""
PROSE = 0.8
"""Smallest share of letters among the characters of a line that is no code and no table"""
NAMES = 0.6
"""Largest share of words with a capital that is no list of names"""
SURE = 0.9
"""Smallest probability, normalised over the languages"""
FEWEST, NOT_THIS, RATHER = 12, 0.03, 0.5
"""Letters of a short question, the probability below which it is surely not in a language, and that of the one it is in
(measured: none of 1,015 English instructions)"""
SURELY_NOT = 0.01
"""The probability that tells alone, in whichever other language the question is (of 994 English instructions the least
is 0.06)"""
NEAR = tuple(
    map(
        frozenset,
        (
            ("no", "nb", "nn", "da", "sv"),
            ("es", "gl", "pt", "ca", "an", "oc"),
            ("hr", "sr", "bs", "sl"),
            ("cs", "sk"),
            ("id", "ms", "jv"),
            ("af", "nl", "li"),
            ("ru", "uk", "be", "bg", "mk"),
            ("hi", "mr", "ne"),
            ("zu", "xh"),
            ("fa", "ur", "ps"),
            ("fr", "wa", "oc"),
            ("zh", "yue", "wuu"),
            ("ar", "ary", "arz"),
            ("en", "pcm"),
            ("he", "hbo"),
            ("el", "grc"),
            ("de", "lb"),
            ("tr", "az", "crh", "tk"),
            ("it", "vec", "lij"),
        ),
    )
)
"""Languages that short texts are mistaken for each other in"""
ASIDE = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`|<\|?[^<>\n]{1,40}\|?>|\[/?[A-Z]+\]|\w+://\S+|\S+@\S+|\$\$.*?\$\$|\\\(.*?\\\)",
    re.DOTALL,
)
_WORD = re.compile(r"[^\W\d_]+")


def identify_language(text: str) -> str | None:
    """ISO 639-1; None where the text is short, or code, numbers or names for the most part."""
    lines = [line for line in ASIDE.sub(" ", text[:ENOUGH]).splitlines() if is_prose(line)]
    prose = "\n".join(lines)
    if letter_weight(prose) < LETTERS or _is_names(prose):
        return None
    found, probability = _load_identifier().classify(prose)
    return str(found) if probability >= SURE else None


def closest_language(text: str) -> str:
    """ISO 639-1 of the language that a text is most like, be it hardly like any."""
    return str(_load_identifier().classify(text[:ENOUGH])[0])


def is_surely_not(text: str, known: str, *, sure: bool = False) -> bool:
    """Is a text too short to tell its language, but surely not in this one, nor in one that is easily confused?

    `sure`: its function words are those of another.
    """
    if _count_letters(text) < FEWEST or _is_names(text):
        return False
    ranked: list[tuple[str, float]] = _load_identifier().rank(text[:ENOUGH])
    first = str(ranked[0][0])
    likely = sum(float(p) for name, p in ranked if name == known)
    surely = likely < SURELY_NOT or (likely < NOT_THIS and (sure or ranked[0][1] >= RATHER))
    return surely and bool(languages_differ(first, known))


def languages_differ(answer: str | None, reference: str | None) -> bool | None:
    """Are these two languages that are not easily confused? None where one is not known."""
    if answer is None or reference is None:
        return None
    return answer != reference and not any({answer, reference} <= near for near in NEAR)


def letter_weight(text: str) -> int:
    """Its letters, those of Chinese, Japanese and Korean three times."""
    return _count_letters(text) + 2 * len(re.findall(f"[{IDEOGRAPHS}]", text))


def _count_letters(text: str) -> int:
    """Letters, and the marks that belong to them."""
    return sum(unicodedata.category(character)[0] in "LM" for character in text)


def is_prose(line: str) -> bool:
    """Is a line words for the most part, and no code or table?"""
    bare = "".join(line.split()).strip("-*#>•.,;:!?…\"'()“”‘’。，！？、：；|0123456789")
    letters = _count_letters(bare)
    return letters >= PROSE * len(bare) and letters > 0


def _is_names(text: str) -> bool:
    words = [word for word in _WORD.findall(text) if word[0].lower() != word[0].upper()]
    capital = sum(word[0].isupper() and not word.isupper() for word in words)
    return len(words) >= 4 and capital > NAMES * len(words)


@cache
def _load_identifier() -> Any:
    langid = importlib.import_module("py3langid.langid")
    return langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
