"""JSON as files hold it, with broken escapes mended: half a surrogate pair is text that no tokenizer takes."""

from __future__ import annotations

import json
from typing import Any

from truetune.data.conversation import Problem

LONE_SURROGATE = Problem("lone-surrogate", "half of a surrogate pair became U+FFFD")


def mended(value: Any, text: str, start: int = 0, end: int | None = None) -> tuple[Any, bool]:
    """The value that `text[start:end]` holds, with U+FFFD for lone surrogates; was there one?"""
    if text.find("\\ud", start, end) < 0 and text.find("\\uD", start, end) < 0:
        return value, False
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return _replaced(value), True
    return value, False


def _replaced(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_replaced(key): _replaced(item) for key, item in value.items()}
    return [_replaced(item) for item in value] if isinstance(value, list) else value


def parsed(value: Any, problems: list[Problem]) -> Any:
    """A list or object that stands in a column as JSON text; anything else as it is."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
        return value
    try:
        found, broken = mended(json.loads(value), value)
    except (ValueError, RecursionError):
        return value
    if broken:
        problems.append(LONE_SURROGATE)
    return found
