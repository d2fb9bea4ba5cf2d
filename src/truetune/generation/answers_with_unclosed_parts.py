"""Answers whose own form says that they were cut: thinking that never ends, a code fence or JSON that nobody closed.

It is told of one text, without others beside it (those: `find_answers_cut_at_one_length`). The trade-off: only what
opens at the beginning of an answer, or of a line, counts: a tag that is talked about in a sentence opens nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

THINKING = re.compile(r"\s{0,20}<(think|thinking|thought|reasoning|scratchpad)>", re.I)
FENCE = re.compile(r"^[ \t]{0,3}(?:`{3,}|~{3,})", re.M)
JSON_START = re.compile(r'\s{0,20}(?:\{\s{0,20}["}]|\[\s{0,20}[\[{"\]])')
ENDS_OF_STRUCTURE = {"{": "}", "[": "]"}
MAX_CHARACTERS = 400_000
"""Of an answer that is looked at"""
UNCLOSED_THINKING, UNCLOSED_FENCE, UNCLOSED_JSON = (
    "thinking that never ends",
    "a code fence that is never closed",
    "JSON that breaks off",
)


def unfinished_part(text: str, prompt: str = "") -> str | None:
    """What an answer opens and never closes, in words; None where it closes all, or the prompt has opened it.

    Args:
        text: the answer.
        prompt: what stands before it, and may end in an open code block.

    Returns:
        UNCLOSED_THINKING, UNCLOSED_FENCE or UNCLOSED_JSON.
    """
    text = text[:MAX_CHARACTERS]
    opened = THINKING.match(text)
    if opened is not None:
        behind = re.search(rf"</{opened[1]}>", text, re.I)
        if behind is None:
            return UNCLOSED_THINKING
    if JSON_START.match(text):
        return UNCLOSED_JSON if _does_json_break_off(text.strip()) else None
    # A prompt may end in an open fence, which the answer closes.
    is_opened_by_prompt = len(FENCE.findall(prompt)) % 2 == 1
    # Two marks mostly are a pair, though the second has a word behind it (```` ``` end ````) and closes nothing by the
    # rules of Markdown. So an even number of marks is taken for pairs.
    is_odd = len(FENCE.findall(text)) % 2 == 1
    if is_opened_by_prompt or not is_odd or not _is_code_fence_left_open(text):
        return None
    return UNCLOSED_FENCE


def _is_code_fence_left_open(text: str) -> bool:
    """Is a fence open at the end, where a longer one may hold shorter ones?"""
    opened = ""
    for line in text.splitlines():
        mark = FENCE.match(line)
        if mark is None:
            continue
        fence = mark[0].strip()
        if not opened:
            opened = fence
        elif (
            fence[0] == opened[0] and len(fence) >= len(opened) and not line.strip().strip(fence[0])
        ):
            opened = ""
    return bool(opened)


def _does_json_break_off(text: str) -> bool:
    """Does JSON end inside of a text or a structure?"""
    waiting: list[str] = []
    in_text = is_escaped = False
    for character in text:
        if in_text:
            if is_escaped:
                is_escaped = False
            elif character == "\\":
                is_escaped = True
            elif character == '"':
                in_text = False
        elif character == '"':
            in_text = True
        elif character in ENDS_OF_STRUCTURE:
            waiting.append(ENDS_OF_STRUCTURE[character])
        elif character in "}]":
            if not waiting or waiting.pop() != character:
                return False  # no JSON
            if not waiting:
                return False  # it is whole; what stands behind it is another matter
    return bool(waiting)


def are_mostly_cut_in_thinking(texts: Iterable[str]) -> bool:
    """Do at least half of these answers end before their thinking does?"""
    found = [unfinished_part(text) == UNCLOSED_THINKING for text in texts]
    return bool(found) and 2 * sum(found) >= len(found)
