"""Conversation: the one form that every row takes, whatever file and format it came from.

A reader fills it and never raises over what is odd in a row: that goes to `problems`, and rules report it with the
line. It is not frozen, since readers fill it step by step and millions are made; nothing changes one later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from truetune.data.pair_score_columns import PairScores

Message = dict[str, Any]
"""A chat message in OpenAI's form: role, content, and what the template may ask for
(reasoning_content, tool_calls, tool_call_id, name); `train` and `weight` are truetune's own."""


class Origin(NamedTuple):
    """Where a row came from."""

    file: str
    line: int
    """1-based: the line of a text file, the ordinal of the row elsewhere."""
    row: int
    """0-based, counted over all files."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Problem(NamedTuple):
    """Something in a row that the reader could not carry over; a finding, never an exception."""

    kind: str
    """unknown-role, not-a-string, missing-turns, empty, ..."""
    text: str
    message: Message | None = None
    """The message that it is in, of the row's own"""


@dataclass(slots=True)
class Conversation:
    """One row.

    A row is a chat (`messages` is not empty) or plain text (`messages` is empty and `text` or
    `prompt` and `completion` hold the strings).
    """

    origin: Origin
    format: str
    messages: list[Message] = field(default_factory=list)
    prompt_messages: int | None = None
    """How many of `messages` are the prompt, where the row says so (prompt/completion, pairs)."""
    tools: list[Any] | None = None
    """Definitions of tools; None where the row has none, never an empty list: `[]` of a file is read as None, so that a
    row without tools gets the plain template, as TRL's preprocessing of datasets does it"""
    documents: list[Any] | None = None
    template_kwargs: dict[str, Any] = field(default_factory=dict)
    prompt: str | None = None
    completion: str | None = None
    text: str | None = None
    rejected: list[Message] | str | None = None
    """The rejected side of a pair (messages after the prompt, or a string); `messages` or
    `completion` hold the chosen one."""
    label: bool | None = None
    """KTO's verdict."""
    label_value: Any = None
    """What the row holds instead of KTO's true or false, where it is no boolean; `label` is what it means."""
    scores: PairScores | None = None
    """What the row itself says that the chosen and the rejected side are worth, where it has columns for that."""
    group: str | None = None
    """What a column of the row (`source`, `dataset`, ...) says that it is one of"""
    unused: tuple[str, ...] = ()
    """Columns that hold something and reach neither prompt nor answer."""
    problems: tuple[Problem, ...] = ()
    made_of: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """The columns of the file's row that a training script made this row of; empty where the row is as in its file."""
    raw: dict[str, Any] | None = field(default=None, repr=False, compare=False)
    """The row as its file holds it; None where it is from no file."""
    read: Callable[[dict[str, Any], Origin], Conversation] | None = field(
        default=None, repr=False, compare=False
    )
    """What made this of `raw`: `render.text_origins_in_file` has it read again, to see where each text stands."""

    @property
    def is_chat(self) -> bool:
        """Has it messages? A row of plain text has none."""
        return bool(self.messages)

    @property
    def is_preference(self) -> bool:
        """Is it a pair, or an answer with a verdict? Then only what follows the prompt reaches the loss."""
        return self.rejected is not None or self.label is not None

    def with_sides_exchanged(self) -> Conversation:
        """The pair with its chosen and rejected sides exchanged."""
        # Whoever reads the row again (provenance, fixes) must get the exchanged pair as well.
        read = None if self.read is None else partial(_read_with_sides_exchanged, self.read)
        if isinstance(self.rejected, list):
            # Both sides stand behind one prompt: only what follows it changes places.
            prompt, chosen = (
                self.messages[: self.prompt_messages],
                self.messages[self.prompt_messages or 0 :],
            )
            return replace(self, messages=[*prompt, *self.rejected], rejected=chosen, read=read)
        return replace(self, completion=self.rejected, rejected=self.completion or "", read=read)


def _read_with_sides_exchanged(
    read: Callable[[dict[str, Any], Origin], Conversation], raw: dict[str, Any], origin: Origin
) -> Conversation:
    """What `read` makes of a row, with the sides of the pair exchanged. At the top level, so that
    it can be pickled.
    """
    return read(raw, origin).with_sides_exchanged()
