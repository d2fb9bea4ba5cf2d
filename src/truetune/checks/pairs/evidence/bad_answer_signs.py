"""Recognises the worse answer of a pair by its text alone, whatever its label: it refuses, or it is
cut off in the middle.

They are read off the text alone, and narrow on purpose: a sign that is missed only weakens the evidence, a sign that
stands in good answers turns it round. Refusals are looked for in English only.

An answer without a full stop at its end may be whole: it ends with a signature, a name or an address, or its author
never writes one. One text does not tell that from a cut, many do: a cut falls anywhere, so that no ending comes again
and again, and a good share of them are a function word, a comma or a scrap of a word (`OpenEnds`).
"""

from __future__ import annotations

import re
from collections import Counter

from truetune.generation.identify_language import LINKING_WORDS

_CANT = (
    r"(?:can(?:no|')t|can not|(?:am|'m) (?:not able|unable) to|won't|will not|am not comfortable)"
)
_DO = r"(?:help|assist|provide|answer|fulfil|comply|do|create|generate|write|support|continue|discuss|engage|give)"
REFUSAL = re.compile(
    rf"^\W*(?:(?:i(?:'m| am) (?:very |so |really )?sorry|sorry|i apologi[sz]e|unfortunately|as an"
    rf" ai(?: \w+){{0,2}})\b"
    rf"[,.]?(?: but)?(?: as an ai(?: \w+){{0,2}},?)? i ?{_CANT}|i ?{_CANT} (?:\w+ )?{_DO}\b)",
    re.I,
)
"""An answer that begins by refusing"""
HARM = re.compile(
    r"\b(?:kill|murder|suicid|bomb|explosive|weapon|gun|drug|cocaine|meth|heroin|poison|steal|rob|hack|malware|virus|"
    r"phish|fraud|launder|illegal|crime|criminal|porn|sexual|nude|rape|racis|sexis|nazi|terror|hate|slur|abus|torture|"
    r"violen|harass|stalk|kidnap|traffick|counterfeit|forge|bully|insult|offensive|harm|"
    r"password|passcode|pin code|credential|private|confidential|medical|diagnos|dosage)\w*",
    re.I,
)
"""A question for which refusing may be the better answer"""
# Chosen, not measured: headings and items of lists have mostly fewer words, and end without a full
# stop.
MIN_SENTENCE_WORDS = 8
"""In a last line from which on it is a sentence, and no heading or item"""
CUT_MARK = re.compile(r"(?:\[|<|\()(?:truncated|cut off|to be continued)(?:\]|>|\))\s*\Z", re.I)
NO_WORD = re.compile(r"[/@_=`$#<\\{}\[\]]|\w\.\w")
"""An address, a path or code"""
SENTENCE = re.compile(r"[.!?][\"')]?(?:\s|\Z)")


def begins_with_refusal(text: str) -> bool:
    """Does this answer begin by refusing?"""
    return REFUSAL.match(text[:200].replace("\u2019", "'")) is not None


NEVER_LAST = frozenset(("the", "a", "an", "and", "my", "your", "our", "their"))
"""Words that end no sentence: one such ending is a cut, however often it comes"""
PARTICLES_BY_LANGUAGE = {
    "en": "in on by not no if then how why what who when where",
    "de": "auf aus bei nach nicht auch mit vor zu warum wie",
    "fr": "pas plus non mais",
    "es": "más no porque",
    "pt": "não",
    "nl": "op mee met door niet aan ook om wat wie",
}
"""Function words that may well be the last of a sentence: log in, wir melden uns nicht, vul het in"""
PARTICLES = frozenset(" ".join(PARTICLES_BY_LANGUAGE.values()).split())
SELDOM_LAST = frozenset(" ".join(LINKING_WORDS.values()).split()) - PARTICLES
# Two words are shared by chance ("for you"), four split one formula over its greetings.
ENDING_WORDS = 3
"""Words at the end by which a formula (`your shop team`) is known when it comes again"""
MAX_REPEATS = 2
"""Times that an ending may come and still be a cut: two answers of hundreds are cut behind the same words, not three"""
MIN_BROKEN = 0.15
"""Share of the endings, each counted once, that must look broken off. Of 900 answers of the demo data cut at random
places 0.30 do between words and 0.35 within them, of the whole ones without their full stop 0.01"""
MAX_ENDINGS = 10_000
"""Endings that are remembered: their share is known long before"""


class OpenEnds:
    """Ends of answers without a full stop, and whether they are cuts."""

    def __init__(self) -> None:
        self.endings: Counter[str] = Counter()

    def add(self, text: str) -> str:
        """Remember the end of an answer without a full stop; returns its last words, by which it is
        known again.
        """
        ending = " ".join(text[-200:].lower().split()[-ENDING_WORDS:])
        if ending in self.endings or len(self.endings) < MAX_ENDINGS:
            self.endings[ending] += 1
        return ending

    def counts_of_cut_endings(self) -> Counter[str]:
        """The endings at which answers were cut, with their counts; none if the answers end as
        whole texts do.
        """
        kept = Counter[str]()
        for ending, count in self.endings.items():
            # What comes again and again is a formula (a signature), unless no sentence can end so.
            if count <= MAX_REPEATS or ending.rpartition(" ")[2] in NEVER_LAST:
                kept[ending] = count
        broken = sum(_is_ending_of_cut_text(ending.rpartition(" ")[2]) for ending in kept)
        return kept if kept and broken >= MIN_BROKEN * len(kept) else Counter()


def _is_ending_of_cut_text(word: str) -> bool:
    """Is a text that ends with this word likely to continue? A single letter is the scrap of one."""
    return word.endswith((",", "-")) or len(word) == 1 or word in NEVER_LAST or word in SELDOM_LAST


def is_marked_as_cut(text: str) -> bool:
    """Does this answer stop in the middle: of a block of code, or with a mark that says so?"""
    text = text.rstrip()
    return text.count("```") % 2 == 1 or CUT_MARK.search(text[-40:]) is not None


def ends_within_sentence(text: str) -> bool:
    """Does this answer end within a sentence, where it ends others? A name or an address ends none."""
    text = text.rstrip()
    ends = text[-1:]
    last = text[text.rfind("\n") + 1 :].split(maxsplit=MIN_SENTENCE_WORDS)
    if not (ends in ",-" or "a" <= ends <= "z") or len(last) < MIN_SENTENCE_WORDS:
        return False
    word = last[-1].split()[-1]
    is_name = word[0].isupper() or NO_WORD.search(word) is not None
    return not is_name and SENTENCE.search(text) is not None
