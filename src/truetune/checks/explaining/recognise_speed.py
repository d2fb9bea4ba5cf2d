"""Words that name a speed: `3 tokens per second`, `105 s per step`, `a minute for each answer`.

A figure of time says nothing to a search by words, and its units (tokens, steps, answers) are words of other symptoms.
Whoever gives a speed and names no other fault speaks of slowness.
"""

from __future__ import annotations

import re

NUMBER = r"(?:\d[\d.,]*|one|two|three|four|five|ten|half a|an?)"
TIME = r"(?:ms|milliseconds?|s|secs?|seconds?|min|mins|minutes?|h|hrs?|hours?|days?)"
PER = r"(?:/|a|an|per|each|every|for (?:a|an|one|each|every|the)|in (?:a|one|each))"
TEXT = (
    r"(?:tok|toks|tokens?|words?|t|characters?|answers?|repl(?:y|ies)|responses?|completions?|requests?|queries"
    r"|prompts?)"
)
WORK = r"(?:steps?|iterations?|its?|batch(?:es)?|epochs?|samples?|examples?)"
TAKES = r"(?:takes?|took|taking|needs?|needed)"
AMOUNT = rf"{NUMBER}\s?{TIME}"
GENERATION = re.compile(
    rf"\b{NUMBER}\s?{TEXT}\s?{PER}\s?{TIME}\b|\b{AMOUNT}\s?{PER}\s?{TEXT}\b"
    rf"|\b(?:answers?|repl(?:y|ies)|responses?|completions?|requests?|tokens?)\s{TAKES}\s(?:\w+\s)?{AMOUNT}\b",
    re.IGNORECASE,
)
TRAINING = re.compile(
    rf"\b{NUMBER}\s?{WORK}\s?{PER}\s?{TIME}\b|\b{AMOUNT}\s?{PER}\s?{WORK}\b|\bs/it\b|\bit/s\b"
    rf"|\b(?:steps?|iterations?|batch|epochs?)\s{TAKES}\s(?:\w+\s)?{AMOUNT}\b",
    re.IGNORECASE,
)
OTHER_FAULT = re.compile(
    r"\b(?:oom|memory|nan|inf|loss(?:es)?|accuracy|scores?|garbage|nonsense|gibberish|salad|wrong|worse|repeats?"
    r"|repeating|loops?|crash\w*|error|killed|hang\w*|stuck|stops?|stopped|cut|empty|forgets?|forgot|hallucinat\w*"
    r"|refus\w*|rude|reward)\b",
    re.IGNORECASE,
)
"""Words of another symptom, beside which a speed is a figure by the way"""
GUIDES_OF_SPEED = ("slow-training", "slow-generation", "several-gpus")
"""Guides on speed: all that a question on it can be about"""


def speed_guides(question: str) -> tuple[str, ...]:
    """The guides that a named speed is about; none where no speed is named, or another fault beside it."""
    if OTHER_FAULT.search(question):
        return ()
    named = (("slow-training", TRAINING), ("slow-generation", GENERATION))
    return tuple(guide for guide, pattern in named if pattern.search(question))
