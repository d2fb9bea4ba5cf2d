"""Finds forged tokens: control tokens in those parts of a row (keys, roles, types) that a template writes without
saying where they came from.

Keys, roles and types are structure to a template, and its variables are its own: what they hold looks the same as what
the template itself writes. In a content such a token is found by its source (`make_documents._find_forged_tokens`); a
tool that is named `<|im_end|>` has none. The trade-off: these strings are searched before anything is rendered, written
or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from truetune.data.conversation import Conversation
from truetune.render.traced_string import STRUCTURE_KEYS

KEYS_WITHOUT_STRUCTURE = frozenset(("role", "content", "reasoning_content", "train", "weight"))
"""Keys of a usual message, which is not searched: it has no strings that are structure but its role"""
ROLES = frozenset(("system", "developer", "user", "assistant", "tool"))


def find_first_forged_control_token(row: Conversation, control: re.Pattern[str]) -> str | None:
    """The first control token that looks like one of the template's, and where it is; None without one."""
    for path, text in _texts_without_provenance(row):
        match = control.search(text)
        if match is not None:
            return f"the control token {match[0]} is in {path}"
    return None


def _texts_without_provenance(row: Conversation) -> Iterator[tuple[str, str]]:
    """(path, text) of all strings that reach the template without a provenance."""
    for i, message in enumerate(row.messages):
        # This runs for every row: usual messages cost three look-ups.
        is_usual = (
            not message.keys() - KEYS_WITHOUT_STRUCTURE
            and message["role"] in ROLES
            and isinstance(message.get("content"), str)
        )
        if not is_usual:
            yield from _structural_texts(message, f"messages[{i}]")
    yield from _structural_texts(row.tools, "tools")
    yield from _structural_texts(row.documents, "documents")
    for name, value in row.template_kwargs.items():
        yield from _all_texts(value, f"chat_template_kwargs.{name}")


def _structural_texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """(path, text) of the keys in a value, and of the strings that are structure."""
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
    """(path, text) of all strings in a value, its keys too."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield f"a key of {path}", str(key)
            yield from _all_texts(item, f"{path}.{key}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _all_texts(item, f"{path}[{i}]")
