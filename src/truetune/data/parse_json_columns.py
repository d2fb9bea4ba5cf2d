"""Parses JSON that a column or a message holds as text.

CSV files and many exports keep lists of messages, tools and arguments as JSON text. A text that begins like JSON and is
none stays a text: it may be what somebody wrote.
"""

from __future__ import annotations

from typing import Any

from truetune.data.conversation import Problem
from truetune.parsing.input_limits import REPLY
from truetune.parsing.parse_json_within_limits import (
    find_duplicate_key,
    parse_json,
    replace_lone_surrogates,
)

LONE_SURROGATE = Problem("lone-surrogate", "half of a surrogate pair became U+FFFD")


def duplicate_key_problem(key: str) -> Problem:
    """The problem that an object has a key twice, so that one of its two values is lost."""
    return Problem(
        "duplicate-key",
        f"the key {key[:60]!r} occurs twice in one object, and one of its values is lost",
    )


def parse_json_text_or_keep(value: Any, problems: list[Problem]) -> Any:
    """The list or object that a column holds as JSON text; anything else as it is."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
        return value
    try:
        # Surrogates are kept here and replaced below, so that the problem can be named. Whole
        # numbers stay exact: ids of 20 digits must not become floats.
        parsed = parse_json(value, REPLY, surrogates="keep", exact_integers=True)
    except ValueError:
        return value
    # Python's reader keeps the last of two equal keys without a word.
    key = find_duplicate_key(value)
    if key is not None:
        problems.append(duplicate_key_problem(key))
    parsed, broken = replace_lone_surrogates(parsed, value)
    if broken:
        problems.append(LONE_SURROGATE)
    return parsed
