"""Identifies the language of a text, where there is enough of it to tell.

Two ways. `identify_language` asks py3langid, which needs some 40 letters. A sentence of four words ("La capital de
Francia es París.") still has words that a language cannot do without: `language_by_function_words` knows those of seven
languages. One of them must be a verb or a pronoun, as titles have articles and prepositions alone ("La vie en rose").

The trade-off: None rather than a guess. Code, tables, lists of names and short texts are in no language here, and
languages that short texts are mistaken for each other in (`CLOSE_LANGUAGES`) never count as different.

Thresholds were chosen on one half of the answers of `bench.judge_answers` (851 answers in eight languages that were
labelled by hand, 90 of them in a wrong language). What is said of half and double below was then measured on all
(`--thresholds`).
"""

from __future__ import annotations

import importlib
import re
import unicodedata
from collections.abc import Mapping
from functools import cache
from typing import Any

from truetune.generation.split_words import IDEOGRAPHS

# Half or double changes nothing: what is in doubt has a low probability as well.
MIN_LETTERS = 40
"""Of a text that is identified, where a letter of a script that writes syllables or words with one counts as three"""
# Chosen for speed: half or double changes nothing.
MAX_CHARACTERS = 4000
"""Of a text that are looked at"""
# At half nothing changes on the labelled answers, which hold little code.
MIN_LETTER_SHARE = 0.8
"""Smallest share of letters among the characters of a line that is no code and no table"""
# At half 10 bad answers are missed; without it there is a false alarm.
MAX_CAPITALISED_SHARE = 0.6
"""Largest share of words with a capital that is no list of names"""
# At half there is a false alarm, with none large enough 6 bad answers are missed.
MIN_PROBABILITY = 0.9
"""Smallest probability, normalised over the languages"""
# At double of the first 21 bad answers are missed.
MIN_LETTERS_TO_EXCLUDE, MAX_UNLIKELY_PROBABILITY, MIN_LIKELY_PROBABILITY = 12, 0.03, 0.5
"""Letters of a short question, the probability below which it is surely not in a language, and that of the one it is
in (measured: none of 1,015 English instructions)"""
# At half 5 bad answers are missed.
MAX_EXCLUDED_PROBABILITY = 0.01
"""The probability that tells alone, in whichever other language the question is (of 994 English instructions the
least is 0.06)"""
CLOSE_LANGUAGES = tuple(
    frozenset(group.split())
    for group in (
        "no nb nn da sv",
        "es gl pt ca an oc",
        "hr sr bs sl",
        "cs sk",
        "id ms jv",
        "af nl li",
        "ru uk be bg mk",
        "hi mr ne",
        "zu xh",
        "fa ur ps",
        "fr wa oc",
        "zh yue wuu",
        "ar ary arz",
        "en pcm",
        "he hbo",
        "el grc",
        "de lb",
        "tr az crh tk",
        "it vec lij",
    )
)
"""Languages that short texts are mistaken for each other in, by ISO 639"""
NO_PROSE = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`|<\|?[^<>\n]{1,40}\|?>|\[/?[A-Z]+\]|(?<!\w)\w+://\S+|(?<![\w.+-])[\w.+-]+@\S+|\$\$.*?\$\$|\\\(.*?\\\)",
    re.DOTALL,
)
"""What is no prose: code, tags, addresses, formulas"""
_NO_ASCII_LETTERS = re.compile("[^A-Za-z]+")
_WORD = re.compile(r"[^\W\d_]+")
MIN_NAMES = 4
"""Words of a text that may be a list of names; of fewer, capitals are the beginnings of sentences"""
LINKING_WORDS: Mapping[str, str] = {
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
STATING_WORDS: Mapping[str, str] = {
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
# At double 4 bad answers are missed.
MIN_FUNCTION_WORDS = 2
"""Different function words that tell a language"""
# At double one bad answer is missed.
MIN_LINKING_WORDS = 4
"""The same of a text that states nothing: a title may have some"""
# At double one bad answer is missed.
MIN_FUNCTION_WORDS_SHARE = 0.3
"""Their share of the words; prose has 0.3 to 0.6"""


def identify_language(text: str) -> str | None:
    """The language of a text by py3langid, as ISO 639-1; None where the text is short, or code,
    numbers or names for the most part.
    """
    without_asides = NO_PROSE.sub(" ", text[:MAX_CHARACTERS])
    prose = "\n".join(line for line in without_asides.splitlines() if is_prose(line))
    if count_letters_with_cjk_as_three(prose) < MIN_LETTERS or _is_list_of_names(prose):
        return None
    language, probability = _load_identifier().classify(prose)
    return str(language) if probability >= MIN_PROBABILITY else None


def closest_language(text: str) -> str:
    """ISO 639-1 of the language that a text is most like, be it hardly like any."""
    return str(_load_identifier().classify(text[:MAX_CHARACTERS])[0])


def is_surely_not_in_language(text: str, language: str, *, sure: bool = False) -> bool:
    """Is a text too short to tell its language, but surely not in this one, nor in one that is easily confused?

    Args:
        text: a question.
        language: ISO 639-1.
        sure: its function words are those of another.
    """
    if _count_letters(text) < MIN_LETTERS_TO_EXCLUDE or _is_list_of_names(text):
        return False
    ranked: list[tuple[str, float]] = _load_identifier().rank(text[:MAX_CHARACTERS])
    likeliest, probability = ranked[0]
    own_probability = sum(float(p) for name, p in ranked if name == language)
    is_likely_another = sure or probability >= MIN_LIKELY_PROBABILITY
    is_excluded = own_probability < MAX_EXCLUDED_PROBABILITY or (
        own_probability < MAX_UNLIKELY_PROBABILITY and is_likely_another
    )
    return is_excluded and bool(are_languages_clearly_different(str(likeliest), language))


def are_languages_clearly_different(language: str | None, other: str | None) -> bool | None:
    """Are these two languages that are not easily confused? None where one is not known."""
    if language is None or other is None:
        return None
    return language != other and not any({language, other} <= close for close in CLOSE_LANGUAGES)


def language_by_function_words(text: str) -> str | None:
    """The language of a sentence by its function words, one of seven, as ISO 639-1; None where its
    words do not tell.
    """
    words = _words_not_in_capitals(text)
    different = set(words)
    counts = {language: len(different & _function_words(language)) for language in LINKING_WORDS}
    # By the code too where the numbers are equal, so that the order of the table decides nothing.
    ranked = sorted(counts, key=lambda language: (counts[language], language), reverse=True)
    language, second = ranked[:2]
    is_statement = bool(different & _pronouns_and_auxiliary_verbs(language))
    least = MIN_FUNCTION_WORDS if is_statement else MIN_LINKING_WORDS
    if counts[language] == counts[second] or counts[language] < least:
        return None
    function_words = sum(word in _function_words(language) for word in words)
    return language if function_words >= MIN_FUNCTION_WORDS_SHARE * len(words) else None


def has_function_words_of_another_language(text: str, language: str) -> bool:
    """Has a text function words of another of the seven languages, and none of this one?"""
    different = set(_words_not_in_capitals(text))
    if language not in LINKING_WORDS or different & _function_words(language):
        return False
    return any(different & _function_words(other) for other in LINKING_WORDS)


def count_letters_with_cjk_as_three(text: str) -> int:
    """Its letters, those of Chinese, Japanese and Korean three times."""
    return _count_letters(text) + 2 * len(re.findall(f"[{IDEOGRAPHS}]", text))


def is_prose(line: str) -> bool:
    """Is a line words for the most part, and no code or table?"""
    # Marks of lists, numbers and punctuation at its ends belong to prose.
    bare = "".join(line.split()).strip("-*#>•.,;:!?…\"'()“”‘’。，！？、：；|0123456789")
    letters = _count_letters(bare)
    return letters >= MIN_LETTER_SHARE * len(bare) and letters > 0


def _count_letters(text: str) -> int:
    """Letters, and the marks that belong to them."""
    # Most texts are ASCII, where one substitution is ten times as fast as a look at each character.
    if text.isascii():
        return len(_NO_ASCII_LETTERS.sub("", text))
    return sum(unicodedata.category(character)[0] in "LM" for character in text)


def _is_list_of_names(text: str) -> bool:
    """Is a text a list of names? They are in no language; scripts without capitals can't be told."""
    words = [word for word in _WORD.findall(text) if word[0].lower() != word[0].upper()]
    capital = sum(word[0].isupper() and not word.isupper() for word in words)
    return len(words) >= MIN_NAMES and capital > MAX_CAPITALISED_SHARE * len(words)


def _words_not_in_capitals(text: str) -> list[str]:
    """Its words; those in capitals are keywords and acronyms, and left out."""
    return [
        word.casefold()
        for word in _WORD.findall(text[:MAX_CHARACTERS])
        if len(word) == 1 or not word.isupper()
    ]


@cache
def _function_words(language: str) -> frozenset[str]:
    """The function words of a language: its linking words and its stating words."""
    return frozenset(LINKING_WORDS[language].split()) | _pronouns_and_auxiliary_verbs(language)


@cache
def _pronouns_and_auxiliary_verbs(language: str) -> frozenset[str]:
    """The words of STATING_WORDS in a language."""
    return frozenset(STATING_WORDS[language].split())


@cache
def _load_identifier() -> Any:
    """py3langid's model, loaded once for the process."""
    # By name, so that scores need no py3langid until a language is asked for.
    langid = importlib.import_module("py3langid.langid")
    return langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
