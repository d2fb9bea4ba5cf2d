"""What the language of an answer is called in a message, short answers too.

By the ways from the surest to the roughest: two scripts in one text, the identified language, function words, the
script. Where even that is not one language's the letters are named ("Cyrillic letters"), rather than a guess.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from truetune.generation.answers_in_wrong_language import (
    lines_without_code,
    writing_script_of_letter,
)
from truetune.generation.identify_language import identify_language, language_by_function_words

LANGUAGE_NAMES: Mapping[str, str] = {
    "af": "Afrikaans", "ar": "Arabic", "be": "Belarusian", "bg": "Bulgarian", "bn": "Bengali", "ca": "Catalan",
    "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek", "en": "English", "eo": "Esperanto", "es": "Spanish",
    "et": "Estonian", "eu": "Basque", "fa": "Persian", "fi": "Finnish", "fr": "French", "gl": "Galician",
    "gu": "Gujarati", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian", "hy": "Armenian",
    "id": "Indonesian", "it": "Italian", "ja": "Japanese", "ka": "Georgian", "kk": "Kazakh", "km": "Khmer",
    "kn": "Kannada", "ko": "Korean", "la": "Latin", "lt": "Lithuanian", "lv": "Latvian", "mk": "Macedonian",
    "ml": "Malayalam", "mn": "Mongolian", "mr": "Marathi", "ms": "Malay", "my": "Burmese", "ne": "Nepali",
    "nl": "Dutch", "no": "Norwegian", "pa": "Punjabi", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian",
    "ru": "Russian", "sk": "Slovak", "sl": "Slovenian", "sq": "Albanian", "sr": "Serbian", "sv": "Swedish",
    "sw": "Swahili", "ta": "Tamil", "te": "Telugu", "th": "Thai", "tl": "Tagalog", "tr": "Turkish", "uk": "Ukrainian",
    "ur": "Urdu", "vi": "Vietnamese", "wuu": "Chinese", "yue": "Chinese", "zh": "Chinese",
}  # fmt: skip
"""Of the languages that most people write in; others by their code"""
SCRIPT_LANGUAGES: Mapping[str, str] = {
    "CJK": "Chinese", "HANGUL": "Korean", "THAI": "Thai", "HEBREW": "Hebrew", "GREEK": "Greek", "ARMENIAN": "Armenian",
    "GEORGIAN": "Georgian", "KHMER": "Khmer", "LAO": "Lao", "MYANMAR": "Burmese", "TAMIL": "Tamil", "TELUGU": "Telugu",
    "KANNADA": "Kannada", "MALAYALAM": "Malayalam", "GUJARATI": "Gujarati", "SINHALA": "Sinhala", "BENGALI": "Bengali",
}  # fmt: skip
"""Scripts that one language is written in, for the most part"""
# Chosen, not measured: names and terms of another script have less.
MIN_FRAGMENT_LETTERS = 3
"""Letters of another script from which it is named as a fragment: a symbol or a unit has fewer"""
MIN_SCRIPT_SHARE = 0.15
"""Of the letters, from which a script is named beside the commonest"""


def name_answer_language(text: str) -> str:
    """The language of a text, in English.

    Returns:
        "Chinese"; both languages where it is in two ("English and Chinese"), the first one first; the script where it
        is too short to tell ("Cyrillic letters").
    """
    scripts = _scripts_of_text_but_names(lines_without_code(text) or text)
    if len(scripts) > 1:
        return " and ".join(_language_of_script(script, text) for script in scripts)
    code = identify_language(text)
    if code is None and scripts == ["LATIN"]:
        code = language_by_function_words(text)
    if code is not None:
        return LANGUAGE_NAMES.get(code, code)
    return _language_of_script(scripts[0], text) if scripts else "no language"


def name_language_and_fragments(text: str, beside: str) -> str:
    """The language of a text, with the languages of fragments in scripts that neither it nor `beside` is written in:
    `English with fragments of Chinese`."""
    name = name_answer_language(text)
    known = {script for script in map(writing_script_of_letter, beside) if script is not None}
    known.update(_scripts_of_text_but_names(lines_without_code(text) or text))
    foreign = Counter(
        script
        for script in map(writing_script_of_letter, text)
        if script is not None and script not in known
    )
    fragments = [
        _language_of_script(script, text)
        for script, count in foreign.most_common()
        if count >= MIN_FRAGMENT_LETTERS
    ]
    return f"{name} with fragments of {' and '.join(fragments)}" if fragments else name


def _scripts_of_text_but_names(text: str) -> list[str]:
    """The scripts of a text that are no names in it, in the order in which they first stand there."""
    letter_scripts = map(writing_script_of_letter, text)
    counts = Counter(script for script in letter_scripts if script is not None)
    least = MIN_SCRIPT_SHARE * counts.total()
    return [script for script, count in counts.items() if count >= least]


def _language_of_script(script: str, text: str) -> str:
    """The language that a script is of, for the most part; else the letters."""
    if script == "LATIN":
        return LANGUAGE_NAMES.get(language_by_function_words(text) or "", "Latin letters")
    if script == "CJK" and any("\u3041" <= character <= "\u30fe" for character in text):
        return "Japanese"
    return SCRIPT_LANGUAGES.get(script, f"{script.capitalize()} letters")
