"""Recognises questions that name a speed (`3 tokens per second`, `105 s per step`), and gives the
guides on that speed.

A figure of time says nothing to a search by words, and its units (tokens, steps, answers) are words of other symptoms.
Whoever gives a speed and names no other fault speaks of slowness; so does who calls a part of the work slow.
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
ROW = r"(?:rows?|questions?|items?|records?|lines?|documents?|conversations?|chats?|tickets?|test cases?)"
ROWS = re.compile(
    rf"\b{AMOUNT}\s?{PER}\s?{ROW}\b|\b{NUMBER}\s?{ROW}\s?{PER}\s?{TIME}\b"
    rf"|\b(?:(?:each|every|a|one)\s{ROW}|rows)\s{TAKES}\s(?:\w+\s){{0,2}}{AMOUNT}\b",
    re.IGNORECASE,
)
"""Units of an evaluation and of a training alike: the words beside them say which"""
TRAINING = re.compile(
    rf"\b{NUMBER}\s?{WORK}\s?{PER}\s?{TIME}\b|\b{AMOUNT}\s?{PER}\s?{WORK}\b|\bs/it\b|\bit/s\b"
    rf"|\b(?:steps?|iterations?|batch|epochs?)\s{TAKES}\s(?:\w+\s)?{AMOUNT}\b",
    re.IGNORECASE,
)
SLOW = (
    r"(?:slow(?:er|ly|ness)?|sluggish|latency|low throughput"
    r"|(?:not|no|isn't|hardly|barely|never) (?:any |much )?(?:faster|quicker)"
    r"|tak(?:es?|ing) (?:(?:\w+ ){0,2}longer|forever|ages|hours|days|(?:far |way |much )?too long"
    r"|(?:\w+ )?times as long|twice as long"
    r"|(?:more than |about |over )?(?:\d[\d.]*|an?|half an?|two|three|four|five|six|ten) (?:whole )?"
    r"(?:hours?|days?|weeks?)))"
)
NEAR = r"(?:[^.;:!?]|\.(?=\d)){0,50}?"
"""Words of one clause: what is slow stands there, before or behind"""
GENERATES = (
    r"(?:inference|generat(?:e[sd]?|ing|ion)|sampling|decoding|predict(?:ing|ions?)|answers?|answering|repl(?:y|ies)"
    r"|serving|server|chat ?bot|api|endpoint|clients?|requests?|v?llm|ollama"
    r"|llama[.-](?:cpp|server)|tgi|sglang|eval(?:uation)?)"
)
TRAINS = (
    r"(?:train(?:ing|s)?|fine-?tuning|epochs?|steps?|data ?load(?:ing|er)|tokeni[sz](?:ing|ation)|eval(?:uation)?"
    r"|validation|checkpoint(?:ing|s)?)"
)
GENERATING = re.compile(rf"\b{GENERATES}\b", re.IGNORECASE)
SLOW_GENERATION = re.compile(
    rf"\b{GENERATES}\b{NEAR}\b{SLOW}\b|\b{SLOW}\b{NEAR}\b{GENERATES}\b", re.IGNORECASE
)
SLOW_TRAINING = re.compile(
    rf"\b{TRAINS}\b{NEAR}\b{SLOW}\b|\b{SLOW}\b{NEAR}\b{TRAINS}\b", re.IGNORECASE
)
OTHER_FAULT = re.compile(
    r"\b(?:oom|memory|nan|inf|loss(?:es)?|accuracy|scores?|garbage|nonsense|gibberish|salad|wrong|worse|repeats?"
    r"|repeating|loops?|crash\w*|error|killed|hang\w*|stuck|stops?|stopped|cut|empty|forgets?|forgot|hallucinat\w*"
    r"|refus\w*|rude|reward|converg\w*)\b",
    re.IGNORECASE,
)
"""Words of another symptom, beside which a speed is a figure by the way"""
GUIDES_OF_SPEED = ("slow-training", "slow-generation", "several-gpus")
"""Guides on speed: all that a question on it can be about"""


def guides_of_named_speed(question: str) -> tuple[str, ...]:
    """The guides that a named speed is about; none where no speed is named, or another fault beside it."""
    if OTHER_FAULT.search(question):
        return ()
    if ROWS.search(question) and GENERATING.search(question):
        return ("slow-generation",)
    figures = (("slow-training", TRAINING), ("slow-generation", GENERATION))
    words = (("slow-training", SLOW_TRAINING), ("slow-generation", SLOW_GENERATION))
    # A unit says which speed it is more surely than a word beside it.
    for named in (figures, words):
        guides = tuple(guide for guide, pattern in named if pattern.search(question))
        if guides:
            return guides
    return ()
