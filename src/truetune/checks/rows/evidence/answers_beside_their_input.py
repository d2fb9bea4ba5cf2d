"""Compares an answer with the text that its prompt gives to be changed: a correction, a translation, another style.

The text is what follows the instruction, after a line end, a colon or a quotation mark; where a system prompt holds the
instruction, it is the whole question. Nothing here knows what is asked for, and in which language.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Literal

Likeness = Literal["copy", "edited"]

BLOCK = re.compile(r"\n\s*|[:\uff1a]\s+|[:\uff1a](?=\W)|\uff1a|[\"\u201c\u00ab\u300c]")
"""What stands between an instruction and its text"""
QUOTES = " \n\t\"'\u201c\u201d\u00ab\u00bb\u300c\u300d`"
MAX_INSTRUCTION_CHARACTERS = 400
"""Characters of an instruction. Chosen: examples of a prompt that shows some make it longer"""
MIN_CHARACTERS = 20
"""Of a text that is compared: names, labels and options are shorter. Chosen"""
MIN_WORDS = 4
"""Words from which words are compared, else characters (scripts without spaces)"""
MIN_COMMON_WORDS, MIN_COMMON_CHARACTERS = 0.5, 0.8
"""Share of a text that is in the other one too where the one is an edit of the other. Chosen: of two sentences about
different things less than a third of the words are common, and more of the characters"""
MAY_REPEAT = re.compile(
    r"\b(?:repeat|copy|copies|echo|verbatim|quote|unchanged|as (?:it )?is|if (?:needed|necessary|any|required)|if there"
    r" (?:is|are)|if it is|same text|extract|select|choose|pick|which|options?|retype|transcri\w*|say|spell out"
    r"|wiederhol\w*|unver\u00e4ndert|falls n\u00f6tig|r\u00e9p\u00e8te\w*|repite|inchang\w*)\b"
    r"|\u91cd\u590d|\u4fdd\u6301\u4e0d\u53d8|\u539f\u6837",
    re.I,
)
"""What an instruction says that allows its text to come back as it is"""


def likeness_to_input(prompt: str, answer: str) -> Likeness | None:
    """How an answer is like the text that its prompt gives.

    Args:
        prompt: what is asked last: an instruction with a text, or the text alone.
        answer: to it.

    Returns:
        `copy` where it is the same, `edited` where most of it is; None otherwise, and where the instruction allows a
        repetition.
    """
    bare = answer.strip(QUOTES)
    if len(bare) < MIN_CHARACTERS:
        return None
    whole = prompt.strip(QUOTES)
    if whole.endswith(bare):
        instruction = whole[: -len(bare)]
        is_block = (
            not instruction or instruction.rstrip(" \t")[-1] in "\n:\uff1a\"\u201c\u00ab\u300c`'"
        )
        is_allowed = len(instruction) > MAX_INSTRUCTION_CHARACTERS or MAY_REPEAT.search(instruction)
        return "copy" if is_block and not is_allowed else None
    return _likeness_of_edit(whole, bare)


def _likeness_of_edit(prompt: str, answer: str) -> Likeness | None:
    """`edited` where an answer has most of the words of the prompt's text."""
    # The text begins at one of few places: behind the first break, or in front.
    first = BLOCK.search(prompt, 0, MAX_INSTRUCTION_CHARACTERS)
    text = prompt[first.end() :] if first else prompt
    if first and MAY_REPEAT.search(prompt, 0, first.end()):
        return None
    return "edited" if any(_is_edit(one, answer) for one in {text, prompt}) else None


def _is_edit(text: str, answer: str) -> bool:
    """Have two texts most of their words in common?"""
    if not len(answer) // 2 <= len(text) <= 2 * len(answer):
        return False
    words, other = text.split(), answer.split()
    least = MIN_COMMON_WORDS
    if min(len(words), len(other)) < MIN_WORDS:
        words, other, least = list(text), list(answer), MIN_COMMON_CHARACTERS
    common = sum((Counter(words) & Counter(other)).values())
    return common >= least * max(len(words), len(other))
