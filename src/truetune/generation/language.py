"""The language of a text, by py3langid; told only where there is enough of it."""

from __future__ import annotations

import importlib
import re
import unicodedata
from functools import cache
from typing import Any

from truetune.generation.words import IDEOGRAPHS

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
        ),
    )
)
"""Languages that short texts are mistaken for each other in"""
_ASIDE = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`|<\|?[^<>\n]{1,40}\|?>|\[/?[A-Z]+\]|\w+://\S+|\S+@\S+|\$\$.*?\$\$|\\\(.*?\\\)",
    re.DOTALL,
)
_WORD = re.compile(r"[^\W\d_]+")


def language(text: str) -> str | None:
    """ISO 639-1; None where the text is short, or code, numbers or names for the most part."""
    lines = [line for line in _ASIDE.sub(" ", text[:ENOUGH]).splitlines() if _is_prose(line)]
    prose = "\n".join(lines)
    if weight(prose) < LETTERS or _is_names(prose):
        return None
    found, probability = _identifier().classify(prose)
    return str(found) if probability >= SURE else None


def switched(answer: str | None, reference: str | None) -> bool | None:
    """Are these two languages that are not easily confused? None where one is not known."""
    if answer is None or reference is None:
        return None
    return answer != reference and not any({answer, reference} <= near for near in NEAR)


def weight(text: str) -> int:
    """Its letters, those of Chinese, Japanese and Korean three times."""
    return _letters(text) + 2 * len(re.findall(f"[{IDEOGRAPHS}]", text))


def _letters(text: str) -> int:
    """Letters, and the marks that belong to them."""
    return sum(unicodedata.category(character)[0] in "LM" for character in text)


def _is_prose(line: str) -> bool:
    bare = "".join(line.split()).strip("-*#>•.,;:!?…\"'()“”‘’。，！？、：；|0123456789")
    letters = _letters(bare)
    return letters >= PROSE * len(bare) and letters > 0


def _is_names(text: str) -> bool:
    words = [word for word in _WORD.findall(text) if word[0].lower() != word[0].upper()]
    capital = sum(word[0].isupper() and not word.isupper() for word in words)
    return len(words) >= 4 and capital > NAMES * len(words)


@cache
def _identifier() -> Any:
    langid = importlib.import_module("py3langid.langid")
    return langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
