"""Finds what a row asks last, and what it answers to that: what the rules on answers in words look at."""

from __future__ import annotations

from truetune.data.conversation import Conversation
from truetune.encoding.row_fingerprints import text_of


def last_question_and_answer(row: Conversation) -> tuple[str, str | None]:
    """(what is asked last, what is answered to it); the answer is None if the row has none, or one
    with tool calls.
    """
    if not row.is_chat:
        return row.prompt or "", row.completion if row.text is None else None
    for i in range(len(row.messages) - 1, -1, -1):
        message = row.messages[i]
        if message.get("role") == "assistant":
            if message.get("tool_calls") or message.get("function_call"):
                return "", None
            return text_of(row.messages[i - 1].get("content")) if i else "", text_of(
                message.get("content")
            )
    return "", None
