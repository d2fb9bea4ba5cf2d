"""Other spellings of right answers that are JSON objects, as calls of tools are, and objects with one other value."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from truetune.parsing.input_limits import REPLY
from truetune.parsing.parse_json_within_limits import parse_json

OTHER_TEXT = "something else"
NAME_KEYS = ("name", "tool", "function", "action", "type")
"""Keys whose value says which tool it is: the values that are changed are its arguments"""


def object_with_another_value(text: str) -> str | None:
    """The JSON object with one value changed, the innermost and last; None where a text is no object with a value.

    Args:
        text: the right answer.
    """
    content = _object_in(text)
    if content is None or not _change_last_value(content):
        return None
    return json.dumps(content, ensure_ascii=False)


def spellings_of_object(text: str) -> Iterator[tuple[str, str]]:
    """(name, text): other spellings of a JSON object, none for other texts.

    Args:
        text: the right answer.
    """
    content = _object_in(text)
    if content is None:
        return
    if len(content) > 1:
        turned = dict(reversed(content.items()))
        yield "X with its keys in another order", json.dumps(turned, ensure_ascii=False)
    yield "X over several lines", json.dumps(content, ensure_ascii=False, indent=2)
    yield "X without spaces", json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def _object_in(text: str) -> dict[str, Any] | None:
    """The JSON object that a text is; None for any other text."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        content = parse_json(text, REPLY, exact_integers=True)
    except ValueError:
        return None
    return content if isinstance(content, dict) and content else None


def _change_last_value(content: dict[str, Any]) -> bool:
    """Change the last text or number of an object, inner objects first; was there one?"""
    for key in reversed(content):
        value = content[key]
        if isinstance(value, dict) and _change_last_value(value):
            return True
    for key in reversed(content):
        value = content[key]
        if key in NAME_KEYS or isinstance(value, bool):
            continue
        if isinstance(value, str):
            content[key] = OTHER_TEXT
            return True
        if isinstance(value, int | float):
            content[key] = 2 * value + 7
            return True
    return False
