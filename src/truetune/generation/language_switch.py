"""Mixing: does an answer leave the language that it should be in?

The reference says which language that is; where it is too short to tell (`4`), the question does. Two things are
compared: the script, which a few letters show, and the language, which needs some 40. A question that speaks of a
language
or of translating is left alone where no reference tells, and so is a script that stands in the question or the
reference.

An answer may also turn: begin in one language and end in another. Names, terms and quotations of another language stand
in good answers, so a turn is a whole stretch of text.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import accumulate

from truetune.generation.function_words import language_by_function_words, speaks_another
from truetune.generation.garbage_text import ENGLISH
from truetune.generation.identify_language import (
    ASIDE,
    identify_language,
    is_prose,
    is_surely_not,
    languages_differ,
    letter_weight,
)
from truetune.generation.split_words import split_stretches

SCRIPT = 20
"""Weight of the letters of an answer whose script tells something, 1 for each, 3 for a Chinese or Japanese character"""
SHORT, SHORT_SENTENCE = 6, 12
"""The same of a short answer that is all in one script: where its reference is in that of the question, and where it
ends as a sentence. Names and titles of other scripts are good answers to a question that has no reference"""
KANA, KANA_SHARE, IDEOGRAPHS_ALONE = 3, 0.25, 6
"""Kana that make a text Japanese, and how many there are for an ideograph; ideographs of a sentence without any, which
is Chinese"""
LEAST = 5
"""Letters of a question that tell its script"""
SPOKEN = 4
"""Words in a row of the answer's script that make it one of the question's"""
MOST = 0.5
"""Share of the letters that are an answer's script"""
TURN = 8
"""Letters in a row of a script that is not the prompt's: more than a name; of Latin ones there must be a sentence"""
HALF = 60
"""Weight of each half of a text whose languages are compared"""
SENTENCE, FUNCTIONS = 7, 2
"""Latin words in a row, and the English function words among them, that are a sentence and no title"""
PART, FUNCTIONS_OF_PART = 4, 3
"""The same of a text that is Latin for the most part: code has `for x in range`, and no more of them in a row"""
SAID, FUNCTIONS_SAID = 3, 1
"""The same of an answer that is one line of words and ends as a sentence: `Shakespeare wrote it.`"""
CHINESE_LIKE = frozenset(("CJK", "HIRAGANA", "KATAKANA", "BOPOMOFO"))
"""Scripts of one text: Japanese mixes three, and the first is that of Chinese too"""
_LANGUAGES = re.compile(
    r"translat|übersetz|tradu[cziçsí]|traduis|перев[оеё]|翻[译譯訳]|ترجم|번역|अनुवाद|dịch|terjemah|çevir|tłumacz|"
    r"\blanguage|langue\b|lengua|idioma|lingua\b|sprache|язык|语言|語言|言語|لغة|언어|भाषा|"
    r"\b(?:english|german|french|spanish|italian|portuguese|russian|chinese|mandarin|cantonese|japanese|korean|arabic|"
    r"hindi|hebrew|greek|turkish|polish|dutch|swedish|danish|norwegian|finnish|czech|hungarian|romanian|ukrainian|"
    r"bulgarian|serbian|croatian|vietnamese|thai|indonesian|malay|persian|farsi|urdu|bengali|tamil|telugu|latin|"
    r"sanskrit|swahili|catalan|esperanto|kanji|pinyin|hiragana|katakana|cyrillic|alphabet|bilingual|multilingual)\b|"
    r"englisch|deutsch|französisch|spanisch|italienisch|russisch|chinesisch|japanisch|arabisch|"
    r"anglais|allemand|français|espagnol|italien|russe\b|chinois|japonais|arabe|"
    r"inglés|alemán|francés|español|italiano|ruso\b|chino\b|japonés|árabe|"
    r"английск|немецк|французск|испанск|русск|китайск|японск|арабск|"
    r"תרגמ?ם?|אנגלית|עברית|צרפתית|שפה|แปล|ภาษา|μετάφρα|μεταφρά|αγγλικ|ελληνικ|γλώσσα|tiếng |bahasa|"
    r"original title|original name|"
    r"[中英法德俄日韩西][文语語]|[英仏独露中韓]国?語|阿拉伯|الإنجليزية|الفرنسية|الألمانية|الصينية|영어|중국어|일본어|한국어",
    re.IGNORECASE,
)
"""A question that speaks of languages"""
_ENDS = tuple(".!?。！？؟।")
_SPLIT = re.compile(r"(?<=[.!?。！？؟।])\s*|\n+")
_LATIN = re.compile(r"[A-Za-z']+(?:[ ,]+[A-Za-z']+)*")
_SYMBOL = re.compile(
    "(?<![\u0370-\u03ff\u1f00-\u1fff])[\u0370-\u03ff\u1f00-\u1fff]{1,3}(?![\u0370-\u03ff\u1f00-\u1fff])"
)
"""Greek letters that are no word: those of a formula"""
_SENTENCE = re.compile(r"[A-Z][A-Za-z', -]*[.!]")
_WORD = re.compile(r"(?<![A-Za-z])[a-z]{2,}")
"""A Latin word of a question in another script that is no name and no acronym: it may ask for that language"""
_TASK = re.compile(r"^[A-Z][a-z]+ ?[:：]", re.MULTILINE)
"""A task in English over a text in another script: `Summarize: ...`"""
_COMMENT = re.compile(r"\s*(?:#|//|/?\*|--|<!--)")
_QUOTED = re.compile(r"[\"“«„「『《(（‘][^\"”»“」』》)）’\n]{1,200}[\"”»“」』》)）’]")


def changes_language(
    answer: str, reference: str, question: str, mine: str | None, theirs: str | None
) -> bool | None:
    """Is an answer, or a part of it, in another language than it should be? None where that can't be told.

    `question` is all that was said before. `mine` and `theirs` are the languages of the whole answer and of its
    reference, where they are known.
    """
    mine = mine or language_by_function_words(prose_of(answer))
    if mine and theirs and languages_differ(mine, theirs):
        return True
    asked = f"{question}\n{reference}"
    free = bool(_LANGUAGES.search(question)) or _is_task_over_a_text(question)
    if free and not theirs:
        return None
    if _is_in_other_script(answer, asked, reference, mine) or turns_to_another_language(
        answer, asked
    ):
        return True
    if theirs or not mine:
        return False if mine and theirs else None
    if language_by_function_words(prose_of(reference)) == mine:
        return False
    return _differs_from_question(answer, mine, question)


def _is_task_over_a_text(question: str) -> bool:
    """Is it an English task over a text in another script? Its answer may be in either language."""
    return bool(_TASK.search(question)) and _count_scripts(question).most_common(1)[0][0] != "LATIN"


def turns_to_another_language(answer: str, asked: str) -> bool:
    """Does an answer begin in one language and go on in another, which is not one of what was asked?"""
    prose = _QUOTED.sub(" ", prose_of(answer))
    counts = _count_scripts(prose)
    if len(counts) > 1 and _has_strange_stretch(prose, counts, _count_scripts(asked)):
        return True
    return _halves_differ(prose, asked)


def _is_in_other_script(answer: str, asked: str, reference: str, mine: str | None) -> bool:
    """Is most of it in a script of which the prompt and the reference have next to nothing?

    Code and names are Latin everywhere: of a Latin answer the language must be known.
    """
    prose = prose_of(answer)
    counts, known = _count_scripts(prose), _count_scripts(asked)
    if not counts or not known or letter_weight(asked) < LEAST:
        return False
    script, count = counts.most_common(1)[0]
    if count <= MOST * counts.total():
        return False
    if script != "LATIN":
        if script == "CJK" and known[script] > 1:
            return _differs_in_kana(prose, asked)
        alone = len(counts) == 1 and letter_weight(prose) == letter_weight(answer)
        return known[script] < 2 and letter_weight(prose) >= _least_weight(
            prose, reference, known, alone=alone
        )
    if _WORD.search(asked) or known.most_common(1)[0][0] == "LATIN":
        return False
    if mine is not None and mine == identify_language(asked):
        return False
    return _is_sentence(prose) or (
        letter_weight(prose) >= SCRIPT and _is_spoken(answer, prose, mine)
    )


def _differs_in_kana(prose: str, asked: str) -> bool:
    """Is one Japanese, which has kana in every sentence, and the other Chinese, which has none?"""
    (mine, ideographs), (theirs, asked_ideographs) = map(_count_kana, (prose, asked))
    if mine:
        return (
            not theirs
            and mine >= KANA
            and mine >= KANA_SHARE * ideographs
            and asked_ideographs >= KANA
        )
    japanese = theirs >= max(KANA, KANA_SHARE * asked_ideographs)
    return japanese and ideographs >= IDEOGRAPHS_ALONE and prose.rstrip()[-1:] in _ENDS


def _count_kana(text: str) -> tuple[int, int]:
    """Kana, and ideographs."""
    return sum("\u3041" <= c <= "\u30fe" for c in text), sum(
        "\u3400" <= c <= "\u9fff" for c in text
    )


def _least_weight(prose: str, reference: str, known: Counter[str], *, alone: bool) -> int:
    """How much of an answer in another script tells that it is: less where nothing else stands in it."""
    if not alone:
        return SCRIPT
    expected = _count_scripts(reference).most_common(1)
    if expected and expected[0][0] == known.most_common(1)[0][0]:
        return SHORT
    return SHORT_SENTENCE if prose.rstrip()[-1:] in _ENDS else SCRIPT


def _is_spoken(answer: str, prose: str, mine: str | None) -> bool:
    """Is a Latin text for the most part words of a language, and no code, no names and no formula?"""
    spoken = mine is not None or any(
        _is_english(found, PART, FUNCTIONS_OF_PART) for found in _LATIN.findall(prose)
    )
    return spoken and letter_weight(prose) > MOST * letter_weight(answer)


def _is_sentence(prose: str) -> bool:
    """Is it one short sentence in English?"""
    return bool(_SENTENCE.fullmatch(prose.strip())) and _is_english(
        prose.strip().rstrip(".!"), SAID, FUNCTIONS_SAID
    )


def prose_of(text: str) -> str:
    """Its lines that are no code and no comment in code."""
    lines = ASIDE.sub(" ", text).splitlines()
    return "\n".join(line for line in lines if is_prose(line) and not _COMMENT.match(line))


def _has_strange_stretch(prose: str, counts: Counter[str], known: Counter[str]) -> bool:
    """Does a stretch of a script stand in it that is neither the prompt's nor a name?"""
    first = _count_scripts(prose[: max(1, len(prose) // 4)]).most_common(1)
    home = first[0][0] if first else counts.most_common(1)[0][0]
    for script, count in counts.items():
        if script == home or known[script] > 1:
            continue
        if script == "LATIN":
            if any(_is_english(found) for found in _LATIN.findall(prose)):
                return True
        elif (
            count * (3 if script == "CJK" else 1) >= SCRIPT
            and _longest_stretch(prose, script) >= TURN
        ):
            return True
    return False


def _is_english(text: str, least: int = SENTENCE, functions: int = FUNCTIONS) -> bool:
    """Is a row of Latin words English, and no list of names (`from Johns Hopkins University and ...`)?"""
    found = text.replace(",", " ").split()
    known = sum(word.casefold() in ENGLISH for word in found)
    says = any(word.islower() and word not in ENGLISH for word in found)
    return says and len(found) >= least and known >= functions


def _longest_stretch(text: str, script: str) -> int:
    """Letters of the longest stretch of a script, over spaces and marks; a Chinese one counts as three."""
    longest = length = 0
    for character in _SYMBOL.sub(" ", text):
        found = script_of(character)
        if found is not None:
            length = length + (3 if found == "CJK" else 1) if found == script else 0
            longest = max(longest, length)
    return longest


def _halves_differ(prose: str, asked: str) -> bool:
    """Are the beginning and the end in two languages that are not easily confused?"""
    parts = [part for part in _SPLIT.split(prose) if part and part.strip()]
    begun = list(accumulate(map(letter_weight, parts)))
    if not begun or begun[-1] < 2 * HALF or _LANGUAGES.search(asked):
        return False
    middle = min(range(len(parts)), key=lambda at: abs(begun[at] - begun[-1] / 2)) + 1
    if not HALF <= begun[middle - 1] <= begun[-1] - HALF:
        return False
    head, tail = (
        identify_language(" ".join(parts[:middle])),
        identify_language(" ".join(parts[middle:])),
    )
    return bool(languages_differ(head, tail)) and tail not in {
        identify_language(line) for line in asked.splitlines()
    }


def _differs_from_question(answer: str, mine: str, question: str) -> bool | None:
    """Is no line of the question in the answer's language, though one's language is known?"""
    spoken = {
        found for line in (question, *question.splitlines()) if (found := identify_language(line))
    }
    home, theirs = (_count_scripts(text).most_common(1) for text in (answer, question))
    if not home or not theirs:
        return None
    if home[0][0] != theirs[0][0] and (
        not spoken or any(_is_in(row, home[0][0]) for row in split_stretches(question))
    ):
        return None
    if not spoken:
        return True if is_surely_not(question, mine, sure=speaks_another(question, mine)) else None
    return all(languages_differ(mine, found) for found in spoken)


def _is_in(stretch: Sequence[str], script: str) -> bool:
    """Are there some words of a script in a row?"""
    return sum(script_of(word[0]) == script for word in stretch) >= SPOKEN


def _count_scripts(text: str) -> Counter[str]:
    """How many letters of each script; Greek letters of a formula aside."""
    return Counter(found for character in _SYMBOL.sub(" ", text) if (found := script_of(character)))


@cache
def script_of(character: str) -> str | None:
    """The script of a letter, those of Chinese and Japanese as one; None for all that is no letter."""
    if not character.isalpha():
        return None
    name = unicodedata.name(character, "").partition(" ")[0]
    if name in CHINESE_LIKE or name.startswith("CJK") or "KANGXI" in name:
        return "CJK"
    return (
        None if name in ("MATHEMATICAL", "FEMININE", "MASCULINE", "MICRO", "SUPERSCRIPT") else name
    )
