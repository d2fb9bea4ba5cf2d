"""Forgery: control tokens in those parts of a row that a template writes without saying where they came from.

Keys, roles and types are structure to a template, and its variables are its own: what they hold can't be told from what
the template itself writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from truetune.data.conversation import Conversation
from truetune.render.traced_string import STRUCTURE_KEYS

PLAIN = frozenset(("role", "content", "reasoning_content", "train", "weight"))
ROLES = frozenset(("system", "developer", "user", "assistant", "tool"))


def find_forged_token(row: Conversation, control: re.Pattern[str]) -> str | None:
    """Where the first control token stands that can't be told from the template's, and which; None where none does."""
    for path, text in _untraced_texts(row):
        if found := control.search(text):
            return f"the control token {found[0]} stands in {path}"
    return None


def _untraced_texts(row: Conversation) -> Iterator[tuple[str, str]]:
    for i, message in enumerate(row.messages):
        if (
            message.keys() - PLAIN
            or message["role"] not in ROLES
            or not isinstance(message.get("content"), str)
        ):
            yield from _structural_texts(message, f"messages[{i}]")
    yield from _structural_texts(row.tools, "tools")
    yield from _structural_texts(row.documents, "documents")
    for name, value in row.template_kwargs.items():
        yield from _all_texts(value, f"chat_template_kwargs.{name}")


def _structural_texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Keys, and the strings that are structure."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"a key of {path}", str(key)
            if key in STRUCTURE_KEYS and isinstance(item, str):
                yield f"{path}.{key}", item
            yield from _structural_texts(item, f"{path}.{key}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _structural_texts(item, f"{path}[{i}]")


def _all_texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """All strings, keys too."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield f"a key of {path}", str(key)
            yield from _all_texts(item, f"{path}.{key}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _all_texts(item, f"{path}[{i}]")
