"""Rendering: the text of one training example, and where each of its characters came from.

Positions are characters of `text`; tokens come later (`encoding.token_labels_from_character_spans`). Sources, places
and starts are parallel lists and no list of records, since one is made for each example of the data, and recipes
share the first two among all rows of a shape. `runs` gives them as records to code that reads few.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

IGNORED = -100
"""The label of a token that is not learned: torch's `ignore_index`."""


class Source(IntEnum):
    """What a character or a token is, by where it came from; the rows of the ledger."""

    TEMPLATE = 0
    BOS = 1
    SYSTEM = 2
    USER = 3
    ASSISTANT = 4
    REASONING = 5
    TOOL_CALL = 6
    TOOL_RESULT = 7
    STOP = 8
    TOOLS = 9
    TEXT = 10
    OTHER = 11
    IMAGE = 12

    @property
    def label(self) -> str:
        """The label of the source, as tables show it."""
        return _LABELS[self]


_LABELS = {
    Source.TEMPLATE: "template text",
    Source.BOS: "BOS",
    Source.SYSTEM: "system",
    Source.USER: "user",
    Source.ASSISTANT: "assistant content",
    Source.REASONING: "reasoning",
    Source.TOOL_CALL: "tool call",
    Source.TOOL_RESULT: "tool result",
    Source.STOP: "stop token",
    Source.TOOLS: "tool definitions",
    Source.TEXT: "plain text",
    Source.OTHER: "other",
    Source.IMAGE: "image tokens",
}


class Run(NamedTuple):
    """`text[start:end]` came from one place."""

    start: int
    end: int
    source: Source
    path: str
    """`messages[2].content`; empty for template text."""
    offset: int
    """Where in the field the run begins, in characters; -1 where only the field is known. To be relied on in renderings
    of `Renderer.render_by_template_with_offsets` alone: one that a recipe filled has the offsets of the row that the
    recipe was made of, where `strip` may have taken more or less away"""


class Span(NamedTuple):
    """`text[start:end]` is supervised: inference must produce it."""

    start: int
    end: int
    turn: int
    """Index of the assistant message; -1 for plain text."""
    weight: float


class Turn(NamedTuple):
    """What the inference contract found for one assistant turn of a rendering."""

    message: int
    """Index in the conversation's messages."""
    start: int
    """First character that inference must produce; -1 where the turn is not rendered at all."""
    stop_start: int
    """First character of the stop token that ends the turn; -1 where there is none."""
    end: int
    """One past the last character that inference must produce."""
    skew: str | None
    """Why the serving prompt is not a prefix of this rendering; None where it is."""


class Repeat(NamedTuple):
    """A token of the text that stands for several equal ones: a picture's."""

    start: int
    """The first character of the token"""
    times: int
    """How often it stands there"""


@dataclass(slots=True)
class Rendering:
    """One training example as text."""

    text: str
    starts: list[int]
    """Where each of its sources begins, and the end of the text."""
    sources: tuple[Source, ...]
    places: tuple[tuple[str, int], ...]
    """(path, offset) of each source, as in Run; the same tuple for all rows of a recipe."""
    spans: list[Span]
    """Supervised characters, in order, disjoint."""
    turns: list[Turn]
    """The assistant turns that this example could train (chat only)."""
    turn: int | None = None
    """The only turn that is trained, where `history: as-served` made one example per turn."""
    template: str | None = None
    """The name of the chat template that made the text; None where none did."""
    repeats: tuple[Repeat, ...] = ()
    """Tokens that the encoder repeats, in order."""
    holds_pictures: bool = False
    """Are all tokens of the row's pictures in it?"""

    @property
    def runs_of_text_by_origin(self) -> list[Run]:
        """The runs of the text from one place each: in order, without gaps, covering the whole text."""
        bounds = zip(self.starts, self.starts[1:], self.sources, self.places, strict=False)
        # A field that is empty in this row is a source of no length: nothing came from it.
        return [
            Run(start, end, source, *place) for start, end, source, place in bounds if start < end
        ]
