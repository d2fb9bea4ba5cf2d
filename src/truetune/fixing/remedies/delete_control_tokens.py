"""Deletes the text of control tokens from the contents of rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from truetune.encoding.split_at_added_tokens import pattern_of_longest_word
from truetune.fixing.base_of_row_remedies import (
    Attempt,
    Remedy,
    RemedyContext,
    RowView,
    Stage,
    combine_into_one_attempt,
)
from truetune.fixing.row_edits import Edit, PutValue, ValuePath
from truetune.fixing.row_messages_with_paths import parse_json_list_or_object
from truetune.render.template import REASONING_KEYS

CONTENT_KEYS = ("content", "value", "text", "tool_calls", *REASONING_KEYS)


class _RemoveTokens(Remedy):
    """Shared by the remedies here: deletes the characters of control tokens, and nothing else."""

    safe = False
    stage = Stage.TOKENS

    def __init__(self, context: RemedyContext) -> None:
        super().__init__(context)
        # A pattern that matches nothing: without a tokenizer no token is known.
        self._control = re.compile("(?!)")
        if context.setup is not None:
            tokenizer = context.setup.tokenizer
            tokens = sorted(str(tokenizer.backend.id_to_token(id)) for id in tokenizer.control)
            self._control = re.compile(pattern_of_longest_word(tokens) if tokens else "(?!)")

    def _text_without_control_tokens(self, text: str) -> str:
        """A text without control tokens. What is left may be a token again: `<|im_<|im_end|>end|>`."""
        while True:
            shorter = self._control.sub("", text)
            if shorter == text:
                return text
            text = shorter

    def _edits_of_texts(self, value: Any, path: ValuePath) -> Iterator[Edit]:
        """Edits that delete control tokens from all texts in a value, those in JSON that is kept as
        text included.
        """
        if isinstance(value, str):
            inner = parse_json_list_or_object(value)
            if inner is not value:
                yield from self._edits_of_texts(inner, path)
                return
            text = self._text_without_control_tokens(value)
            if text != value:
                yield PutValue(path, text)
        elif isinstance(value, dict):
            for key, item in value.items():
                yield from self._edits_of_texts(item, (*path, key))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                yield from self._edits_of_texts(item, (*path, index))


class RemoveFromContent(_RemoveTokens):
    """Deletes control tokens from the contents, reasoning and calls of turns, or from columns of
    plain text.
    """

    rule = "special-token-in-content"
    what = "remove control tokens from contents"

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """An attempt on all turns at once, then one on the columns of text."""
        yield from combine_into_one_attempt(
            edit
            for turn in row.turns
            for key in CONTENT_KEYS
            if key in turn.message
            for edit in self._edits_of_texts(turn.message[key], (*turn.path, key))
        )
        texts = (
            # Columns of plain text. Not safe either way: a text on tokenizers may mean the token
            # that it names.
            row.value.keys() - {turn.path[0] for turn in row.turns} - set(row.conversation.unused)
        )
        yield from combine_into_one_attempt(
            edit
            for name in sorted(texts)
            for edit in self._edits_of_texts(row.value[name], (name,))
        )


class RemoveFromPairs(RemoveFromContent):
    """Deletes control tokens from chats with a rejected side, which the other rule does not look
    at.
    """

    rule = "special-token-inside-pair-answer"
