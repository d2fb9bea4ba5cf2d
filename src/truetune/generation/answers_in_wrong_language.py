"""Tells whether an answer, or a part of it, leaves the language that it should be in.

The reference says which language that is; where it is too short to tell (`4`), the question does. Two things are
compared: the script, which a few letters show, and the language, which needs some 40. A question that speaks of a
language or of translating is left alone where no reference tells, and so is a script that stands in the question or the
reference.

An answer may also turn: begin in one language and end in another. Names, terms and quotations of another language stand
in good answers, so a turn is a whole stretch of text.

The trade-off: short answers in another Latin language are judged only where function words tell it; "Paris." is right
in all of them. What is not known is None, and no fault.

Thresholds were chosen on one half of the answers of `bench.judge_answers` (851 answers in eight languages that were
labelled by hand, 90 of them in a wrong language). What is said of half and double below was then measured on all
(`--thresholds`).
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import accumulate

from truetune.generation.garbage_text import ENGLISH_FUNCTION_WORDS
from truetune.generation.identify_language import (
    NO_PROSE,
    are_languages_clearly_different,
    count_letters_with_cjk_as_three,
    has_function_words_of_another_language,
    identify_language,
    is_prose,
    is_surely_not_in_language,
    language_by_function_words,
)
from truetune.generation.split_words import split_words_between_marks

# Half or double changes nothing: answers in a wrong script have far more.
MIN_SCRIPT_WEIGHT = 20
"""Weight of the letters of an answer whose script tells something, 1 for each, 3 for a Chinese or Japanese
character"""
# Chosen on cases (tests/generation/test_short_answers.py): half or double changes nothing on the labelled answers.
MIN_SHORT_WEIGHT, MIN_SENTENCE_WEIGHT = 6, 12
"""The same of a short answer that is all in one script: where its reference is in that of the question, and where it
ends as a sentence. Names and titles of other scripts are good answers to a question that has no reference."""
# Half or double changes nothing: Japanese prose has one kana and more for an ideograph.
MIN_KANA, KANA_SHARE, MIN_IDEOGRAPHS_ALONE = 3, 0.25, 6
"""Kana that make a text Japanese, and how many there are for an ideograph; ideographs of a sentence without any,
which is Chinese"""
# At double one bad answer is missed.
MIN_QUESTION_WEIGHT = 5
"""Weight of the letters of question and reference that tell their script"""
# Half or double changes nothing.
MIN_ROW_WORDS = 4
"""Words in a row of the answer's script that make it one of the question's"""
MAIN_SCRIPT_SHARE = 0.5
"""Share of the letters that are an answer's script: a majority"""
# Half or double changes nothing.
MIN_TURN_LETTERS = 8
"""Letters in a row of a script that is not the prompt's: more than a name; of Latin ones there must be a sentence"""
# Half changes nothing, at double one turn is missed; what is needed to identify a language is 40.
MIN_HALF_WEIGHT = 60
"""Weight of each half of a text whose languages are compared"""
# Half or double changes nothing here and in the next two.
SENTENCE_WORDS, SENTENCE_FUNCTION_WORDS = 7, 2
"""Latin words in a row, and the English function words among them, that are a sentence and no title"""
LATIN_TEXT_WORDS, LATIN_TEXT_FUNCTION_WORDS = 4, 3
"""The same of a text that is Latin for the most part: code has `for x in range`, and no more of them in a row"""
SHORT_SENTENCE_WORDS, SHORT_SENTENCE_FUNCTION_WORDS = 3, 1
"""The same of an answer that is one line of words and ends as a sentence: `Shakespeare wrote it.`"""
CHINESE_LIKE = frozenset(("CJK", "HIRAGANA", "KATAKANA", "BOPOMOFO"))
"""Scripts of one text: Japanese mixes three, and the first is that of Chinese too"""
LANGUAGE_WORDS = re.compile(
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
QUOTED = re.compile(r"[\"“«„「『《(（‘][^\"”»“」』》)）’\n]{1,200}[\"”»“」』》)）’]")


def is_answer_in_wrong_language(
    answer: str,
    reference: str,
    question: str,
    answer_language: str | None,
    reference_language: str | None,
) -> bool | None:
    """Is an answer, or a part of it, in another language than it should be?

    Args:
        answer: as the model wrote it.
        reference: empty where there is none.
        question: all that was said before.
        answer_language: of the whole answer, ISO 639-1, where it is known.
        reference_language: the same of the reference.

    Returns:
        None where that can't be told.
    """
    own = answer_language or language_by_function_words(lines_without_code(answer))
    if own and reference_language and are_languages_clearly_different(own, reference_language):
        return True
    before = f"{question}\n{reference}"
    if not reference_language and _speaks_of_languages_or_texts(question):
        return None
    if _is_in_other_script(answer, before, reference, own):
        return True
    if turns_to_another_language(answer, before):
        return True
    if not own:
        return None
    # In the reference's language, then: that was compared above where it is known for sure.
    is_as_reference = language_by_function_words(lines_without_code(reference)) == own
    if reference_language or is_as_reference:
        return False
    return _is_no_question_line_in_language(answer, own, question)


def _speaks_of_languages_or_texts(question: str) -> bool:
    """May an answer be in any language, as far as the question tells: does it speak of languages, or of a text?"""
    return bool(LANGUAGE_WORDS.search(question)) or _is_english_task_over_other_script(question)


def _is_english_task_over_other_script(question: str) -> bool:
    """Is it an English task over a text in another script? Its answer may be in either language."""
    return bool(_TASK.search(question)) and _main_writing_script(question) != "LATIN"


def turns_to_another_language(answer: str, before: str) -> bool:
    """Does an answer begin in one language and continue in another, which is not one of what was said before?"""
    # Quotations of another language stand in good answers.
    prose = QUOTED.sub(" ", lines_without_code(answer))
    counts = _count_letters_by_script(prose)
    if len(counts) > 1 and _has_stretch_of_foreign_script(
        prose, counts, _count_letters_by_script(before)
    ):
        return True
    return _do_beginning_and_end_differ_in_language(prose, before)


def _is_in_other_script(answer: str, before: str, reference: str, language: str | None) -> bool:
    """Is most of it in a script of which the prompt and the reference have next to nothing?

    Args:
        answer: as the model wrote it.
        before: question and reference.
        reference: by itself.
        language: of the answer, where it is known.
    """
    prose = lines_without_code(answer)
    counts, known = _count_letters_by_script(prose), _count_letters_by_script(before)
    # Without letters on one side there is nothing to compare.
    if not counts or not known or count_letters_with_cjk_as_three(before) < MIN_QUESTION_WEIGHT:
        return False
    script, count = counts.most_common(1)[0]
    if count <= MAIN_SCRIPT_SHARE * counts.total():
        return False
    if script == "LATIN":
        return _is_unexpected_latin_language(answer, prose, before, language)
    # Two letters: one may be a symbol.
    if script == "CJK" and known[script] > 1:
        return _is_japanese_beside_chinese(prose, before)
    is_alone = len(counts) == 1 and count_letters_with_cjk_as_three(
        prose
    ) == count_letters_with_cjk_as_three(answer)
    least = _min_letter_weight_to_tell(prose, reference, before, is_alone=is_alone)
    return known[script] < 2 and count_letters_with_cjk_as_three(prose) >= least


def _is_unexpected_latin_language(
    answer: str, prose: str, before: str, language: str | None
) -> bool:
    """Is a Latin answer in another language than a conversation that is not Latin?

    Code and names are Latin everywhere, so it must be a sentence, or words of a language.

    Args:
        answer: as the model wrote it.
        prose: what of it is no code.
        before: question and reference.
        language: ISO 639-1 of the answer, where it is known.
    """
    # A Latin word in the question may ask for an English answer.
    if _WORD.search(before) or _main_writing_script(before) == "LATIN":
        return False
    if language is not None and language == identify_language(before):
        return False
    if _is_short_english_sentence(prose):
        return True
    return count_letters_with_cjk_as_three(
        prose
    ) >= MIN_SCRIPT_WEIGHT and _is_mostly_words_of_language(answer, prose, language)


def _is_japanese_beside_chinese(prose: str, before: str) -> bool:
    """Is one Japanese, which has kana in every sentence, and the other Chinese, which has none?"""
    kana, ideographs = _count_kana_and_ideographs(prose)
    kana_before, ideographs_before = _count_kana_and_ideographs(before)
    if kana:
        is_japanese = kana >= MIN_KANA and kana >= KANA_SHARE * ideographs
        return is_japanese and not kana_before and ideographs_before >= MIN_KANA
    was_japanese = kana_before >= max(MIN_KANA, KANA_SHARE * ideographs_before)
    # Names and dates are ideographs alone in Japanese too: a sentence of them is Chinese.
    is_sentence = ideographs >= MIN_IDEOGRAPHS_ALONE and prose.rstrip()[-1:] in _ENDS
    return was_japanese and is_sentence


def _count_kana_and_ideographs(text: str) -> tuple[int, int]:
    """Kana, and ideographs."""
    kana = sum("\u3041" <= character <= "\u30fe" for character in text)
    ideographs = sum("\u3400" <= character <= "\u9fff" for character in text)
    return kana, ideographs


def _min_letter_weight_to_tell(prose: str, reference: str, before: str, *, is_alone: bool) -> int:
    """Weight of letters from which an answer in another script is told to be: less where nothing else stands in it.

    Args:
        prose: what of the answer is no code.
        reference: empty where there is none.
        before: question and reference.
        is_alone: all letters of the answer are of that script.
    """
    if not is_alone:
        return MIN_SCRIPT_WEIGHT
    expected = _main_writing_script(reference)
    if expected is not None and expected == _main_writing_script(before):
        return MIN_SHORT_WEIGHT
    return MIN_SENTENCE_WEIGHT if prose.rstrip()[-1:] in _ENDS else MIN_SCRIPT_WEIGHT


def _is_mostly_words_of_language(answer: str, prose: str, language: str | None) -> bool:
    """Is a Latin text for the most part words of a language, and no code, no names and no formula?"""
    is_known = language is not None or any(
        _is_english_and_no_name_list(row, LATIN_TEXT_WORDS, LATIN_TEXT_FUNCTION_WORDS)
        for row in _LATIN.findall(prose)
    )
    return is_known and count_letters_with_cjk_as_three(
        prose
    ) > MAIN_SCRIPT_SHARE * count_letters_with_cjk_as_three(answer)


def _is_short_english_sentence(prose: str) -> bool:
    """Is it one short sentence in English?"""
    text = prose.strip()
    words = text.rstrip(".!")
    return bool(_SENTENCE.fullmatch(text)) and _is_english_and_no_name_list(
        words, SHORT_SENTENCE_WORDS, SHORT_SENTENCE_FUNCTION_WORDS
    )


def lines_without_code(text: str) -> str:
    """The lines of a text that are no code and no comment in code."""
    lines = NO_PROSE.sub(" ", text).splitlines()
    return "\n".join(line for line in lines if is_prose(line) and not _COMMENT.match(line))


def _has_stretch_of_foreign_script(prose: str, counts: Counter[str], known: Counter[str]) -> bool:
    """Does a stretch of a script stand in it that is neither the prompt's nor a name?

    Args:
        prose: of an answer.
        counts: letters of its scripts.
        known: the same of what was said before.
    """
    # The answer's own script is that of its beginning; what comes later is what it may have turned to.
    home = _main_writing_script(prose[: max(1, len(prose) // 4)]) or counts.most_common(1)[0][0]
    for script, count in counts.items():
        if script == home or known[script] > 1:
            continue
        if script == "LATIN":
            if any(_is_english_and_no_name_list(row) for row in _LATIN.findall(prose)):
                return True
            continue
        weight = count * (3 if script == "CJK" else 1)
        if (
            weight >= MIN_SCRIPT_WEIGHT
            and _letter_count_of_longest_script_run(prose, script) >= MIN_TURN_LETTERS
        ):
            return True
    return False


def _is_english_and_no_name_list(
    text: str, min_words: int = SENTENCE_WORDS, min_function_words: int = SENTENCE_FUNCTION_WORDS
) -> bool:
    """Is a row of Latin words English, and no list of names (`from Johns Hopkins University and ...`)?"""
    words = text.replace(",", " ").split()
    function_words = sum(word.casefold() in ENGLISH_FUNCTION_WORDS for word in words)
    # A word in small letters that is no function word: names have none.
    says_something = any(word.islower() and word not in ENGLISH_FUNCTION_WORDS for word in words)
    return says_something and len(words) >= min_words and function_words >= min_function_words


def _letter_count_of_longest_script_run(text: str, script: str) -> int:
    """Letters of the longest stretch of a script, over spaces and marks; a Chinese one counts as three."""
    longest = length = 0
    for character in _SYMBOL.sub(" ", text):
        other = writing_script_of_letter(character)
        if other is None:
            continue
        length = length + (3 if other == "CJK" else 1) if other == script else 0
        longest = max(longest, length)
    return longest


def _do_beginning_and_end_differ_in_language(prose: str, before: str) -> bool:
    """Are the beginning and the end in two languages that are not easily confused?"""
    sentences = [part for part in _SPLIT.split(prose) if part and part.strip()]
    weights = list(accumulate(map(count_letters_with_cjk_as_three, sentences)))
    if not weights or weights[-1] < 2 * MIN_HALF_WEIGHT or LANGUAGE_WORDS.search(before):
        return False
    # Cut between two sentences, as near the middle as there is such a place.
    half = weights[-1] / 2
    middle = min(range(len(sentences)), key=lambda at: abs(weights[at] - half)) + 1
    if not MIN_HALF_WEIGHT <= weights[middle - 1] <= weights[-1] - MIN_HALF_WEIGHT:
        return False
    head = identify_language(" ".join(sentences[:middle]))
    tail = identify_language(" ".join(sentences[middle:]))
    if not are_languages_clearly_different(head, tail):
        return False
    return tail not in {identify_language(line) for line in before.splitlines()}


def _is_no_question_line_in_language(answer: str, language: str, question: str) -> bool | None:
    """Is no line of the question in the answer's language, though one's language is known?

    `language` is that of the answer. None where that can't be told.
    """
    line_languages = map(identify_language, (question, *question.splitlines()))
    known = {other for other in line_languages if other}
    answer_script, question_script = _main_writing_script(answer), _main_writing_script(question)
    if answer_script is None or question_script is None:
        return None
    if answer_script != question_script:
        stands_in_question = any(
            _has_enough_words_in_script(row, answer_script)
            for row in split_words_between_marks(question)
        )
        if not known or stands_in_question:
            return None
    if known:
        return all(are_languages_clearly_different(language, other) for other in known)
    # The question is too short to identify its language, but long enough to exclude one.
    is_another = is_surely_not_in_language(
        question, language, sure=has_function_words_of_another_language(question, language)
    )
    return True if is_another else None


def _has_enough_words_in_script(stretch: Sequence[str], script: str) -> bool:
    """Are there some words of a script in a row?"""
    return sum(writing_script_of_letter(word[0]) == script for word in stretch) >= MIN_ROW_WORDS


def _main_writing_script(text: str) -> str | None:
    """The script of most of its letters; None without letters."""
    commonest = _count_letters_by_script(text).most_common(1)
    return commonest[0][0] if commonest else None


def _count_letters_by_script(text: str) -> Counter[str]:
    """How many letters of each script; Greek letters of a formula aside."""
    scripts = map(writing_script_of_letter, _SYMBOL.sub(" ", text))
    return Counter(script for script in scripts if script is not None)


@cache
def writing_script_of_letter(character: str) -> str | None:
    """The script of a letter, those of Chinese and Japanese as one; None for all that is no letter."""
    if not character.isalpha():
        return None
    name = unicodedata.name(character, "").partition(" ")[0]
    if name in CHINESE_LIKE or name.startswith("CJK") or "KANGXI" in name:
        return "CJK"
    # Letters by their class, and symbols by their use: a formula is in no script.
    is_symbol = name in ("MATHEMATICAL", "FEMININE", "MASCULINE", "MICRO", "SUPERSCRIPT")
    return None if is_symbol else name
