"""Priors: what an answer's text says of its worth, whatever the label. English only, and on purpose narrow."""

from __future__ import annotations

import re

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
WORDS = 8
"""In a last line from which on it is a sentence, and no heading or item"""
MARKS = re.compile(r"(?:\[|<|\()(?:truncated|cut off|to be continued)(?:\]|>|\))\s*\Z", re.I)
SENTENCE = re.compile(r"[.!?][\"')]?(?:\s|\Z)")


def refuses(text: str) -> bool:
    """Does this answer begin by refusing?"""
    return REFUSAL.match(text[:200].replace("\u2019", "'")) is not None


def is_cut(text: str) -> bool:
    """Does this answer stop in the middle: of a sentence (where it ends others), or of a block of code?"""
    text = text.rstrip()
    if text.count("```") % 2:
        return True
    if MARKS.search(text[-40:]):
        return True
    ends = text[-1:]
    last = text[text.rfind("\n") + 1 :].split(maxsplit=WORDS)
    return (
        (ends in ",-" or "a" <= ends <= "z")
        and len(last) >= WORDS
        and SENTENCE.search(text) is not None
    )
