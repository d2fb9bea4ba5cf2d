"""The language of a short sentence in Latin letters, by its function words.

py3langid needs some 40 letters. A sentence of four words ("La capital de Francia es París.") still has words that a
language cannot do without. One of them must be a verb or a pronoun, as titles have articles and prepositions alone
("La vie en rose").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

LINKING: Mapping[str, str] = {
    "en": (
        "the a an of and to in that for on with as at by from or but not no if than then into what"
        " which who where when why how"
    ),
    "de": (
        "der die das den dem des ein eine einen einem einer und oder in im zu zum zur von vom mit"
        " für auf nicht aus bei nach als auch wie um dass wer warum weil"
    ),
    "fr": (
        "le la les un une des du de et ou à au aux en dans pour par avec sur que qui ne pas plus l"
        " d quel quelle pourquoi parce qu"
    ),
    "es": (
        "el la los las un una de del y o a al en por para con que no se lo su más qué cuál quién"
        " porque cómo"
    ),
    "it": (
        "il lo la i gli le un una di del della dei delle e o a al alla in per con che non si da nel"
        " l perché chi cosa quale"
    ),
    "pt": (
        "o a os as um uma de do da dos das e ou em no na para por com que não se mais ao qual quem"
        " porque"
    ),
    "nl": (
        "de het een van en of in op te met voor niet aan door naar bij als dat ook om wat wie"
        " waarom omdat"
    ),
}
"""Articles, prepositions, conjunctions and question words (SQL has `where`)"""
STATING: Mapping[str, str] = {
    "en": (
        "is are was were be been it he she they we you i his her their this these there have has"
        " had can could will would should do does did"
    ),
    "de": (
        "ist sind war waren sein wird werden wurde hat haben hatte kann können soll muss es er sie"
        " wir ich man sich was gibt"
    ),
    "fr": "est sont était être a ont avait peut il elle ils elles nous vous je c ce cette",
    "es": "es son era está están ser fue ha han hay puede él ella ellos nosotros yo esto",
    "it": "è sono era essere ha hanno può egli lei loro noi io questo questa c",
    "pt": "é são era está estão ser foi tem há pode ele ela eles nós eu isto isso",
    "nl": "is zijn was waren wordt werd heeft hebben kan het hij zij ze we ik er",
}
"""Verbs and pronouns: a title has none"""
LEAST, WITHOUT_STATING, SHARE = 2, 4, 0.3
"""Different function words, those of a text that states nothing, and their share of the words"""
_WORDS = re.compile(r"[^\W\d_]+")
ENOUGH = 4000
"""Characters that are looked at"""


def language_by_function_words(text: str) -> str | None:
    """ISO 639-1 of a sentence of one of seven languages; None where its words do not tell."""
    found = _function_candidates(text)
    different = set(found)
    (best, first), (second, _) = sorted(
        ((len(different & _function_words(language)), language) for language in LINKING),
        reverse=True,
    )[:2]
    if best == second or best < (LEAST if different & _stating_words(first) else WITHOUT_STATING):
        return None
    return (
        first
        if sum(word in _function_words(first) for word in found) >= SHARE * len(found)
        else None
    )


def speaks_another(text: str, language: str) -> bool:
    """Has a text function words of another of these languages, and none of this one?"""
    different = set(_function_candidates(text))
    if language not in LINKING or different & _function_words(language):
        return False
    return any(different & _function_words(other) for other in LINKING)


def _function_candidates(text: str) -> list[str]:
    """Its words; those in capitals are keywords and acronyms."""
    return [
        word.casefold()
        for word in _WORDS.findall(text[:ENOUGH])
        if len(word) == 1 or not word.isupper()
    ]


@cache
def _function_words(language: str) -> frozenset[str]:
    return frozenset(LINKING[language].split()) | _stating_words(language)


@cache
def _stating_words(language: str) -> frozenset[str]:
    return frozenset(STATING[language].split())
