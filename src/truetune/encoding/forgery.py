"""Forgery: control tokens in those parts of a row that a template writes without saying where they came from.

Keys, roles and types are structure to a template, and its variables are its own: what they hold can't be told from what
the template itself writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from truetune.data.conversation import Conversation
from truetune.render.traced import STRUCTURE_KEYS

PLAIN = frozenset(("role", "content", "reasoning_content", "train", "weight"))
ROLES = frozenset(("system", "developer", "user", "assistant", "tool"))


def forged(row: Conversation, control: re.Pattern[str]) -> str | None:
    """Where the first control token stands that can't be told from the template's, and which; None where none does."""
    for path, text in _untraced(row):
        if found := control.search(text):
            return f"the control token {found[0]} stands in {path}"
    return None


def _untraced(row: Conversation) -> Iterator[tuple[str, str]]:
    for i, message in enumerate(row.messages):
        if (
            message.keys() - PLAIN
            or message["role"] not in ROLES
            or not isinstance(message.get("content"), str)
        ):
            yield from _structure(message, f"messages[{i}]")
    yield from _structure(row.tools, "tools")
    yield from _structure(row.documents, "documents")
    for name, value in row.template_kwargs.items():
        yield from _strings(value, f"chat_template_kwargs.{name}")


def _structure(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Keys, and the strings that are structure."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"a key of {path}", str(key)
            if key in STRUCTURE_KEYS and isinstance(item, str):
                yield f"{path}.{key}", item
            yield from _structure(item, f"{path}.{key}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _structure(item, f"{path}[{i}]")


def _strings(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """All strings, keys too."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield f"a key of {path}", str(key)
            yield from _strings(item, f"{path}.{key}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _strings(item, f"{path}[{i}]")
