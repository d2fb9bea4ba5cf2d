"""What the language of an answer is called, short answers too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from truetune.generation.function_words import language_by_function_words
from truetune.generation.identify_language import identify_language
from truetune.generation.language_switch import prose_of, script_of

NAMES: Mapping[str, str] = {
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
OF_SCRIPTS: Mapping[str, str] = {
    "CJK": "Chinese", "HANGUL": "Korean", "THAI": "Thai", "HEBREW": "Hebrew", "GREEK": "Greek", "ARMENIAN": "Armenian",
    "GEORGIAN": "Georgian", "KHMER": "Khmer", "LAO": "Lao", "MYANMAR": "Burmese", "TAMIL": "Tamil", "TELUGU": "Telugu",
    "KANNADA": "Kannada", "MALAYALAM": "Malayalam", "GUJARATI": "Gujarati", "SINHALA": "Sinhala", "BENGALI": "Bengali",
}  # fmt: skip
"""Scripts that one language is written in, for the most part"""
PART = 0.15
"""Share of the letters that a script needs to be named beside the commonest"""


def language_name(text: str) -> str:
    """In English: "Chinese"; the script where a text is too short to tell ("Cyrillic letters"); both languages where it
    is in two ("English and Chinese"), the first one first."""
    letters = [found for character in prose_of(text) or text if (found := script_of(character))]
    counts = Counter(letters)
    scripts = [script for script, count in counts.items() if count >= PART * len(letters)]
    if len(scripts) > 1:
        return " and ".join(_of_script(script, text) for script in scripts)
    known = identify_language(text) or (
        language_by_function_words(text) if scripts == ["LATIN"] else None
    )
    if known is not None:
        return NAMES.get(known, known)
    return _of_script(scripts[0], text) if scripts else "no language"


def _of_script(script: str, text: str) -> str:
    if script == "LATIN":
        return NAMES.get(language_by_function_words(text) or "", "Latin letters")
    if script == "CJK" and any("\u3041" <= character <= "\u30fe" for character in text):
        return "Japanese"
    return OF_SCRIPTS.get(script, f"{script.capitalize()} letters")
