"""Reduces what a chat template raised on a row to its cause, so that rows that differ only in
quoted words count as one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from truetune.data.conversation import Conversation

ROLES = frozenset(
    ("user", "assistant", "system", "tool", "function", "developer", "ipython", "model")
)
"""Names that templates say of themselves: `roles must alternate user/assistant/...`"""
# Chosen, not measured: at 2, a message like `is` would be cut out of the template's own words.
MIN_QUOTED_CHARACTERS = 3
"""Characters of a text that is looked for in a message: one or two stand in any"""
# Chosen, not measured: it bounds the search in rows of megabytes; no template that we read quotes more.
MAX_QUOTED_CHARACTERS = 200
"""Characters of a text that a template may quote; a longer one is looked for by its beginning"""


def template_error_without_quoted_row_text(row: Conversation, reason: str) -> str:
    """The text of what a template raised, without what it quotes of this row: numbers, and the
    row's own words.

    Rows of one cause give one text: `Unknown role 'bot1'` and `Unknown role 'bot2'` both give
    `Unknown role '...'`.
    """
    # The longest first: a text that holds another would be cut in pieces by it.
    for text in sorted(
        set(_row_strings_except_template_words(row.messages)), key=lambda text: (-len(text), text)
    ):
        if text in reason:
            reason = re.sub(rf"(?<!\w){re.escape(text)}(?!\w)", "...", reason)
    return re.sub(r"(?<![\w.])\d+(?![\w.])", "N", reason)


def _row_strings_except_template_words(value: Any) -> Iterator[str]:
    """The strings in a row, without keys of messages and without names that any template may say."""
    if isinstance(value, str):
        text = value[:MAX_QUOTED_CHARACTERS].strip()
        if len(text) >= MIN_QUOTED_CHARACTERS and text.lower() not in ROLES:
            yield text
    elif isinstance(value, dict):
        for key, item in value.items():
            if key != "type":
                yield from _row_strings_except_template_words(item)
    elif isinstance(value, list):
        for item in value:
            yield from _row_strings_except_template_words(item)
