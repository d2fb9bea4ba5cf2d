"""Tells which language an answer is in, and which one it should be in by its own prompt.

The prompt may name one ("Answer in German."); else it is that of the question. None rather than a guess: prompts that
speak of languages and name none to answer in, prompts in two languages, and answers that are code, data, a quotation
or too short are in no language here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from truetune.generation.answers_in_wrong_language import LANGUAGE_WORDS, QUOTED, lines_without_code
from truetune.generation.identify_language import (
    MAX_CHARACTERS,
    are_languages_clearly_different,
    count_letters_with_cjk_as_three,
    identify_language,
    language_by_function_words,
)

# Chosen, not measured: prose with a few terms, numbers and quotations has more.
PROSE_SHARE = 0.7
"""Share of an answer's letters that stand in prose; code, tables and JSON have less"""
# Chosen, not measured: identifying a line costs two milliseconds.
MAX_LINES = 12
"""Lines of a question whose languages are looked at, of the first and of the last"""
NAMES: Mapping[str, str] = {
    "en": "english|englisch|anglais|inglés|ingles|inglese|inglês|engels|английском",
    "de": "german|deutsch|allemand|alemán|aleman|tedesco|alemão|duits|немецком",
    "fr": "french|französisch|français|francés|frances|francese|francês|frans|французском",
    "es": "spanish|spanisch|espagnol|español|spagnolo|espanhol|spaans|испанском",
    "it": "italian|italienisch|italien|italiano|italiaans|итальянском",
    "pt": "portuguese|portugiesisch|portugais|portugués|portoghese|português|portugees",
    "nl": "dutch|niederländisch|néerlandais|holandés|olandese|holandês|nederlands",
    "ru": "russian|russisch|russe|ruso|russo|русском",
    "pl": "polish|polnisch|polonais|polaco|polsku",
    "tr": "turkish|türkisch|turc|turco|türkçe",
    "zh": "chinese|chinesisch|chinois|chino|中文",
    "ja": "japanese|japanisch|japonais|japonés|日本語",
    "ko": "korean|koreanisch|coréen|coreano|한국어",
    "ar": "arabic|arabisch|arabe|árabe|العربية",
}
"""What languages are called in an instruction to answer in one"""
_NAME = "|".join(f"(?P<{code}>{names})" for code, names in NAMES.items())
_IN = r"(?:in|auf|en|em|på|на)\s+(?:the\s+|het\s+)?"
_END = r"(?=\s*(?:[.,;:!?()\n]|$|\b(?:only|whatever|regardless|even|always|language|please|and|nur|und|et|y|e)\b))"
_VERB = (
    r"(?:answers?|repl(?:y|ies)|responds?|(?:be)?antworte\w*|répond(?:s|ez|re)|respond[ae]r?|contest[ae]|rispond(?:i|ere|ete)|"
    r"antwoord|отвечай(?:те)?)"
)
_BEFORE = (
    r"(?:^|[.!?:;,\n]\s{0,40}|\b(?:you|always|must|only|please|should|shall|will|du|sie|bitte|immer|toujours|siempre|"
    r"sempre|altijd|всегда|and|und|et|y|e|en|и)\s+)"
)
_INSTRUCTION = re.compile(
    rf"{_BEFORE}{_VERB}\b[^.!?\n]{{0,60}}?\b{_IN}(?:{_NAME}){_END}", re.IGNORECASE
)
"""`Always answer in German.`"""
_RESULT = re.compile(
    r"\b(?:answers?|replies|responses?|antwort(?:en)?|réponses?|respuestas?|risposte|antwoorden)\b"
    rf"[^.!?\n]{{0,40}}?\b(?:must|should|are|is|be|müssen|sind|sollen|doivent|deben)\b[^.!?\n]{{0,20}}?\b{_IN}(?:{_NAME}){_END}",
    re.IGNORECASE,
)
"""`All answers must be in German.`"""
_CONDITION = re.compile(
    r"\b(?:unless|except|otherwise|if|when|where|same|sofern|außer|wenn|falls|sonst|gleiche[nr]?|sauf|quand|même|sinon|"
    r"salvo|cuando|mismo|tranne|quando|stessa|tenzij|als|если|кроме)\b",
    re.IGNORECASE,
)
"""In the sentence of the instruction: the language depends on something"""
_OTHERS_LANGUAGE = re.compile(
    r"\b(?:same|their|your|own|other|another|different) language|'s language|language (?:of|that|in which)",
    re.IGNORECASE,
)
"""Anywhere: the language of whoever asks"""
_ANY_NAME = re.compile(_NAME, re.IGNORECASE)
_GENERIC = frozenset(("language", "langue", "lengua", "idioma", "lingua", "sprache", "язык"))
"""Words that `LANGUAGE_WORDS` finds and that name no language"""
_NO_LANGUAGE = re.compile(
    r"deutschland\w*|\blanguage models?\b|\bprogramming languages?\b|\bprogrammiersprachen?\b",
    re.IGNORECASE,
)
"""A country and things that begin or end as a language is called; prompts are full of them"""
_REASONING = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
"""Models reason in English, whatever they answer in"""
_PARTS = re.compile(r"(?<=[.!?:;])\s+|\n+")


class RowLanguages(NamedTuple):
    """Of one answer, by ISO 639-1."""

    asked: str
    """That of the question, or the one that the prompt says to answer in"""
    answered: str
    """Equal to `asked` where the two are easily confused"""
    is_named: bool
    """Does the prompt say it?"""


def languages_of_answer_and_question(
    instructions: str, question: str, answer: str
) -> RowLanguages | None:
    """The languages of an answer and of what it answers; None where one of them can't be told.

    Args:
        instructions: what stands before the question: the system prompt, earlier turns of the user.
        question: what is answered.
        answer: as it is trained.
    """
    prompt = _NO_LANGUAGE.sub(" ", f"{instructions}\n{question}"[-2 * MAX_CHARACTERS :])
    named = language_that_prompt_asks_for(prompt)
    if named is None and LANGUAGE_WORDS.search(prompt):
        return None
    answered = _language_of_answer(answer)
    asked = named or _identify_by_model_or_words(lines_without_code(question[:MAX_CHARACTERS]))
    if asked is None or answered is None:
        return None
    if not are_languages_clearly_different(answered, asked):
        return RowLanguages(asked, asked, named is not None)
    if named is None and _may_answer_language_be_right(answered, question, answer):
        return None
    return RowLanguages(asked, answered, named is not None)


def language_that_prompt_asks_for(prompt: str) -> str | None:
    """The one language that a prompt says to answer in; None where it names none, several, or a condition."""
    found = _INSTRUCTION.search(prompt) or _RESULT.search(prompt)
    if found is None or _OTHERS_LANGUAGE.search(prompt):
        return None
    rest_of_sentence = _PARTS.split(prompt[found.end() :], maxsplit=1)[0]
    if _CONDITION.search(found.group() + rest_of_sentence):
        return None
    for mention in LANGUAGE_WORDS.findall(prompt):
        is_name = _ANY_NAME.search(mention)
        if is_name is None and mention.casefold() not in _GENERIC:
            return None
    # By their codes: `German (Deutsch)` is one language.
    names = {match.lastgroup for match in _ANY_NAME.finditer(prompt)}
    return found.lastgroup if names == {found.lastgroup} else None


def _language_of_answer(answer: str) -> str | None:
    """The language of an answer's own words; None of code, data and quotations."""
    if "```" in answer:
        return None
    own_words = QUOTED.sub(" ", _REASONING.sub(" ", answer)[:MAX_CHARACTERS])
    prose = lines_without_code(own_words)
    if count_letters_with_cjk_as_three(prose) < PROSE_SHARE * count_letters_with_cjk_as_three(
        own_words
    ):
        return None
    return _identify_by_model_or_words(prose)


def _identify_by_model_or_words(prose: str) -> str | None:
    """The language of a prose text, by py3langid, else by its function words; None where neither
    tells it.
    """
    return identify_language(prose) or language_by_function_words(prose)


def _may_answer_language_be_right(language: str, question: str, answer: str) -> bool:
    """Is a part of the question in this language, or the answer a part of the question?"""
    if answer.strip() in question:
        return True
    text = question[:MAX_CHARACTERS]
    if any(language_by_function_words(part) == language for part in _PARTS.split(text)):
        return True
    lines = [line for line in text.splitlines() if line.strip()]
    looked_at = dict.fromkeys((*lines[:MAX_LINES], *lines[-MAX_LINES:]))
    return any(identify_language(line) == language for line in looked_at)
