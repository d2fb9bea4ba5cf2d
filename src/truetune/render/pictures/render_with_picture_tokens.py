"""Renders rows as the model's processor does: each picture's placeholder becomes all the tokens of the picture.

A chat template writes one placeholder for a picture; the processor then puts in hundreds of tokens, by the picture's
size. Here the rendered text gets what the processor writes, with each run of equal tokens once, and the rendering
remembers how often it is repeated (`Rendering.repeats`): the encoder repeats ids, not text. A row whose pictures are
not all known, or whose placeholders are not as many, stays as the template renders it, and its pictures are said not to
be counted.

Stacks write the placeholder in three ways. Content parts are rendered by the template. `<image>` in a text becomes such
a part, as LLaMA-Factory and ms-swift make the model's own placeholder of it. Without either, the pictures are put
before the first turn of the user, as TRL and ms-swift do.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from truetune.data.conversation import Conversation, Message
from truetune.data.media_of_row import PLACEHOLDERS, count_placeholders, texts_of_row
from truetune.data.read_pictures_of_rows import Picture, PictureReader
from truetune.errors import TemplateError
from truetune.render.pictures.picture_expansion import PictureExpansion, PictureRefusedError
from truetune.render.pictures.picture_families import PictureTokenizer
from truetune.render.renderer import Renderer
from truetune.render.rendering import Rendering, Repeat, Source, Span, Turn


class Replacement(NamedTuple):
    """A stretch of a rendered text, and what is put there."""

    start: int
    end: int
    expansion: PictureExpansion


@dataclass(slots=True)
class PictureRenderer:
    """A renderer whose texts hold the tokens of pictures."""

    renderer: Renderer
    tokenizer: PictureTokenizer
    reader: PictureReader

    def render(self, row: Conversation) -> list[Rendering]:
        """The training examples of a row, as `Renderer.render`."""
        expansions = self._expansions_of_row(row)
        if not expansions:
            return self.renderer.render(row)
        for written in (row, _with_parts_for_placeholders(row, len(expansions))):
            if written is None:
                continue
            try:
                renderings = [
                    self._expand(one, expansions) for one in self.renderer.render(written)
                ]
            except TemplateError:
                if written is row:
                    raise
                continue
            found = [one for one in renderings if one is not None]
            if found and len(found) == len(renderings):
                return found
        return self.renderer.render(row)

    def render_by_template_with_offsets(self, row: Conversation) -> list[Rendering]:
        """As the template alone renders it: a view of tokens shows a picture as its placeholder."""
        return self.renderer.render_by_template_with_offsets(row)

    def prove(self) -> None:
        """As `Renderer.prove`."""
        self.renderer.prove()

    def _expansions_of_row(self, row: Conversation) -> list[PictureExpansion]:
        """What each picture of a row becomes; empty where it has none, or one is not known."""
        pictures = self.reader.pictures_of_row(row).pictures
        found = [self._expansion_of(picture) for picture in pictures]
        known = [expansion for expansion in found if expansion is not None]
        return known if len(known) == len(found) else []

    def _expansion_of(self, picture: Picture) -> PictureExpansion | None:
        """What a picture becomes; None where its size is not known, or the processor refuses it."""
        if picture.header is None or not picture.header.is_size_known:
            return None
        try:
            return self.tokenizer.expand(*picture.header.shown_size)
        except PictureRefusedError:
            return None

    def _expand(
        self, rendering: Rendering, expansions: Sequence[PictureExpansion]
    ) -> Rendering | None:
        """The rendering with its placeholders replaced; None where they are not as many as the pictures."""
        placeholder, text = self.tokenizer.placeholder, rendering.text
        # An example of one turn holds the pictures of the turns before it alone: they are the first ones.
        count = text.count(placeholder)
        if not 0 < count <= len(expansions) or (rendering.turn is None and count < len(expansions)):
            return None
        at, replacements = 0, []
        for expansion in expansions[:count]:
            start = text.index(placeholder, at)
            at = start + len(placeholder)
            replacements.append(Replacement(start, at, expansion))
        return replace_in_rendering(rendering, replacements)


def replace_in_rendering(rendering: Rendering, replacements: Sequence[Replacement]) -> Rendering:
    """The rendering with stretches of its text replaced by pictures; what is put in is of the source IMAGE.

    `replacements` are in order, and do not overlap.
    """
    pieces: list[str] = []
    starts: list[int] = []
    sources: list[Source] = []
    places: list[tuple[str, int]] = []
    repeats: list[Repeat] = []
    at = length = 0
    for replacement in (*replacements, None):
        end = len(rendering.text) if replacement is None else replacement.start
        for start, stop, source, place in _runs_between(rendering, at, end):
            starts.append(length)
            sources.append(source)
            places.append(place)
            pieces.append(rendering.text[start:stop])
            length += stop - start
        if replacement is None:
            break
        starts.append(length)
        sources.append(Source.IMAGE)
        places.append(("", -1))
        for piece in replacement.expansion.pieces:
            if piece.times > 1:
                repeats.append(Repeat(length, piece.times))
            pieces.append(piece.text)
            length += len(piece.text)
        at = replacement.end
    moved = _PositionMap(replacements)
    return replace(
        rendering,
        text="".join(pieces),
        starts=[*starts, length],
        sources=tuple(sources),
        places=tuple(places),
        spans=[_moved_span(span, moved) for span in rendering.spans],
        turns=[_moved_turn(turn, moved) for turn in rendering.turns],
        repeats=tuple(repeats),
        holds_pictures=True,
    )


def _runs_between(
    rendering: Rendering, start: int, end: int
) -> list[tuple[int, int, Source, tuple[str, int]]]:
    """(start, end, source, place) of the runs of a rendering within a stretch, cut to it."""
    found = []
    first = max(bisect_right(rendering.starts, start) - 1, 0)
    for number in range(first, len(rendering.sources)):
        begin, stop = rendering.starts[number], rendering.starts[number + 1]
        if begin >= end:
            break
        low, high = max(begin, start), min(stop, end)
        if low < high:
            path, offset = rendering.places[number]
            place = (path, offset + low - begin if offset >= 0 else offset)
            found.append((low, high, rendering.sources[number], place))
    return found


class _PositionMap:
    """Where a character of the old text is in the new one."""

    def __init__(self, replacements: Sequence[Replacement]) -> None:
        self.ends = [replacement.end for replacement in replacements]
        shift = 0
        self.shifts = [0]
        for start, end, expansion in replacements:
            shift += len(expansion.text) - (end - start)
            self.shifts.append(shift)

    def __call__(self, position: int) -> int:
        """The new position; one that says "none" stays."""
        if position < 0:
            return position
        return position + self.shifts[bisect_right(self.ends, position)]


def _moved_span(span: Span, moved: _PositionMap) -> Span:
    """A span at its new place."""
    return span._replace(start=moved(span.start), end=moved(span.end))


def _moved_turn(turn: Turn, moved: _PositionMap) -> Turn:
    """A turn at its new place."""
    return turn._replace(
        start=moved(turn.start), stop_start=moved(turn.stop_start), end=moved(turn.end)
    )


def _with_parts_for_placeholders(row: Conversation, pictures: int) -> Conversation | None:
    """The row with a content part for each picture, where its texts have `<image>` for each, or nothing for any.

    None where it is no chat, has parts already, or has another number of placeholders.
    """
    if not row.messages or any(type(m.get("content")) is list for m in row.messages):
        return None
    placeholders = count_placeholders(texts_of_row(row), "image")
    if placeholders == pictures:
        messages = [_with_parts_in_content(message) for message in row.messages]
    elif placeholders:
        return None
    else:
        messages = _with_parts_before_first_question(row.messages, pictures)
    return replace(row, messages=messages)


def _with_parts_in_content(message: Message) -> Message:
    """A message whose placeholders are parts; as it is where it has none."""
    content = message.get("content")
    if not isinstance(content, str) or not PLACEHOLDERS["image"].search(content):
        return message
    parts: list[dict[str, str]] = []
    at = 0
    for found in PLACEHOLDERS["image"].finditer(content):
        if content[at : found.start()]:
            parts.append({"type": "text", "text": content[at : found.start()]})
        parts.append({"type": "image"})
        at = found.end()
    if content[at:]:
        parts.append({"type": "text", "text": content[at:]})
    return {**message, "content": parts}


def _with_parts_before_first_question(messages: Sequence[Message], pictures: int) -> list[Message]:
    """The messages with the pictures before the first turn of the user."""
    written = list(messages)
    for number, message in enumerate(written):
        if message.get("role") == "user":
            text = {"type": "text", "text": str(message.get("content") or "")}
            images = [{"type": "image"}] * pictures
            written[number] = {**message, "content": [*images, text]}
            break
    return written
