"""Finds the word arrays of a shell script that commands are put together from: `ARGS=(model --port
8000)`, `ARGS+=(--enable-lora)`.

How it works: the lines are read in order. What is appended under an `if` without an `else` counts as appended: the
command with all that it may have is the one that a reader asks about.

The trade-off: an array that is set twice, in a function's loop, or in the arms of `else` and `case`, is not known, and
its word keeps the `$`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

ARRAY_BEGIN = re.compile(
    r"\s*(?:(?:local|declare|export|readonly|typeset)\s+(?:-\w+\s+)*)?([A-Za-z_]\w*)(\+?)=\((.*)",
    re.S,
)
# The boundary keeps the search of one long word from beginning again at each of its letters.
ARRAY_SET = re.compile(r"\b([A-Za-z_]\w*)\+?=\(")
"""Anywhere on a line, so also behind `then` or `&&`"""
ARRAY_WORD = re.compile(r"\$\{(\w+)\[[@*]\]\}")
REPEATS_OR_CHOOSES = re.compile(r"(?:for|while|until|case|else|elif)\b")
BLOCK_END = re.compile(r"(?:fi|esac|done)\b")


def sets_array(line: str) -> bool:
    """Does a line of a shell script set an array, or append to one?"""
    return ARRAY_BEGIN.match(line) is not None


def begins_unclosed_array(line: str) -> bool:
    """Does a line begin an array that continues on the next one?"""
    match = ARRAY_BEGIN.match(line)
    return match is not None and _text_before_closing_parenthesis(match[3]) is None


def arrays_with_known_words(lines: Iterable[str]) -> dict[str, list[str]]:
    """The arrays of a shell script whose words are known, by name.

    Args:
        lines: Its logical lines, an array on one.

    Returns:
        Words as they stand, without quotes; variables in them keep their `$`.
    """
    arrays: dict[str, list[str]] = {}
    unknown: set[str] = set()
    depth_of_choice = 0
    for line in lines:
        match = ARRAY_BEGIN.match(line)
        behind = line if match is None else match[3]
        # What stands behind a condition on one line is not told from what always runs.
        unknown.update(ARRAY_SET.findall(behind))
        if match is None:
            depth_of_choice = _depth_of_loops_and_choices(line, depth_of_choice)
            continue
        name, is_appended, words = match[1], bool(match[2]), _words_in_parentheses(match[3])
        # Not set a second time, and not appended to what no line set.
        fits_what_is_known = is_appended == (name in arrays)
        if words is None or depth_of_choice or not fits_what_is_known:
            unknown.add(name)
            continue
        arrays[name] = [*arrays.get(name, []), *words]
    return {name: words for name, words in arrays.items() if name not in unknown}


def _depth_of_loops_and_choices(line: str, depth: int) -> int:
    """How many loops and choices (`for`, `case`, `else`) are open after a line. The arms after
    `else` are one until `fi`.
    """
    if BLOCK_END.match(line):
        return max(0, depth - 1)
    if not REPEATS_OR_CHOOSES.match(line):
        return depth
    is_arm = line.startswith(("else", "elif"))
    return max(depth, 1) if is_arm else depth + 1


def _words_in_parentheses(rest: str) -> list[str] | None:
    """The words between the parentheses; None if they do not close, or hold a command substitution."""
    inside = _text_before_closing_parenthesis(rest)
    if inside is None or "$(" in inside or "`" in inside:
        return None
    try:
        return shlex.split(inside, comments=True)
    except ValueError:
        return None


def _text_before_closing_parenthesis(rest: str) -> str | None:
    """The text up to the parenthesis that closes an array; None if it does not close."""
    quote = ""
    depth = 0
    for place, sign in enumerate(rest):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        elif sign == "(":
            depth += 1
        elif sign == ")" and depth:
            depth -= 1
        elif sign == ")":
            return rest[:place]
    return None
