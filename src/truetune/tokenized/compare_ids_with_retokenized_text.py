"""Tests on sampled rows whether their ids are those that this tokenizer gives for their text, under
this template.

The ids of another tokenizer spell bytes that are no characters, words of mixed scripts, or words without grammar. And
a conversation that is read back from the ids renders to the same ids, unless another template, or other settings of
it, made them. Both are tried on a sample of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from truetune.data.conversation import Conversation, Message, Origin
from truetune.encoding.encoder import Encoder
from truetune.encoding.render_and_encode_in_two_threads import make_batch
from truetune.encoding.token_bytes import TokenBytes
from truetune.errors import TruetuneError
from truetune.generation.garbage_text import describe_garbage_characters
from truetune.render.rendering import Source
from truetune.render.template_probes import Probes
from truetune.tokenized.find_token_sources import PlacedChunk
from truetune.tokenized.find_turn_layout_of_template import ROLE_NAMES, find_turn_layout
from truetune.tokenized.read_tokenized_rows_in_chunks import Ints, Mask

# Chosen, not measured: a template that differs differs in most rows, and each row costs two
# renderings.
MAX_SAMPLED_ROWS = 256
"""Rows that are tried at most"""
# More of the first chunk, so that a small file is judged by more than a row or two.
ROWS_OF_FIRST_CHUNK, ROWS_OF_LATER_CHUNK = 16, 1
"""... of the first chunk, and of each one behind it"""
# Chosen, not measured: longer rows are packs, which are no single conversation.
MAX_ROW_TOKENS = 4_096
"""Tokens of a row that are read"""
# Chosen, not measured: names and numbers pass for text of any tokenizer; double would leave out
# short chats.
MIN_TEXT_BYTES = 40
"""Bytes; a shorter text tells nothing"""


@dataclass
class RoundTrip:
    """The results of the round trips of the sampled rows."""

    read: int = 0
    """Rows whose text was read"""
    strange: list[tuple[Origin, str]] = field(default_factory=list)
    """Rows whose ids spell no text under this tokenizer, with the beginning of what they spell"""
    rendered: int = 0
    """Rows that were read back as a conversation and rendered"""
    differ: list[tuple[Origin, str]] = field(default_factory=list)
    """Those whose rendering has other ids, with the first difference"""


class RoundTripSampler:
    """Samples rows while chunks are read, and tries a round trip on each."""

    def __init__(self, probes: Probes) -> None:
        self._probes = probes
        self._vocabulary = TokenBytes(probes.tokenizer.backend)
        self._added = np.array(
            sorted(probes.tokenizer.backend.get_added_tokens_decoder()), np.int64
        )
        # The exact way: a shortcut that is wrong would look like another template.
        self._encoder = Encoder(probes.tokenizer.backend, only_reference=True)
        self._layout = find_turn_layout(probes)
        self._tried = 0
        self.found = RoundTrip()

    def add(self, placed: PlacedChunk) -> None:
        """Try the round trip on a few rows of a chunk."""
        rows = len(placed.chunk.rows)
        if self._tried >= MAX_SAMPLED_ROWS or not rows:
            return
        wanted = ROWS_OF_LATER_CHUNK if self._tried else ROWS_OF_FIRST_CHUNK
        # Spread over the chunk: files are often sorted by length or source.
        for row in np.unique(np.linspace(0, rows - 1, min(wanted, rows)).astype(int)).tolist():
            self._tried += 1
            self._note_row_spelling_no_text(placed, row)
            self._compare_ids_with_rendered_conversation(placed, row)

    def _note_row_spelling_no_text(self, placed: PlacedChunk, row: int) -> None:
        """Spell the text of a row, and note the row where its ids spell none."""
        chunk = placed.chunk
        part = slice(
            int(chunk.offsets[row]),
            min(int(chunk.offsets[row + 1]), int(chunk.offsets[row]) + MAX_ROW_TOKENS),
        )
        kept = placed.valid[part] & ~placed.padding[part]
        pieces = [
            self._spell_bytes(piece) for piece in self._split_at_added_tokens(chunk.ids[part][kept])
        ]
        # Added tokens part the text: they are no words, and hold no characters of a row.
        text = b" ".join(pieces)
        if len(text) < MIN_TEXT_BYTES:
            return
        self.found.read += 1
        if (
            any(map(_holds_bytes_no_text_has, pieces))
            or describe_garbage_characters(text.decode("utf-8", "replace"), None) is not None
        ):
            self.found.strange.append(
                (chunk.origin(row), repr(text.decode("utf-8", "replace")[:80]))
            )

    def _split_at_added_tokens(self, ids: Ints) -> Iterator[Ints]:
        """The ids between added tokens, piece by piece."""
        borders = np.flatnonzero(np.isin(ids, self._added))
        starts = [0, *(borders + 1).tolist()]
        for start, end in zip(starts, [*borders.tolist(), len(ids)], strict=True):
            yield ids[start:end]

    def _spell_bytes(self, ids: Ints) -> bytes:
        """The bytes that some ids spell."""
        return b"".join(self._vocabulary.spell(int(id)) for id in ids)

    def _spell_text(self, ids: Ints) -> str:
        """The text that some ids spell."""
        return self._spell_bytes(ids).decode("utf-8", "replace")

    def _compare_ids_with_rendered_conversation(self, placed: PlacedChunk, row: int) -> None:
        """Render the row's conversation again, and compare the ids."""
        ids, messages = self._ids_and_plain_messages_of_row(placed, row)
        if not messages:
            return
        wanted = [
            rendered_ids
            for rendered_ids in map(
                self._render_ids, _messages_also_without_template_text(messages)
            )
            if rendered_ids is not None
        ]
        if not wanted:
            return
        self.found.rendered += 1
        # Any of the variants will do: what a template writes into the system turn by itself can't
        # be told from the row's text.
        if not any(
            _is_shorter_the_beginning_of_longer(ids, rendered_ids) for rendered_ids in wanted
        ):
            at = max(
                (_common_prefix_length(ids, rendered_ids) for rendered_ids in wanted), default=0
            )
            best = max(wanted, key=lambda rendered_ids: _common_prefix_length(ids, rendered_ids))
            # Two tokens before the difference, so that the place is recognised.
            around = slice(max(0, at - 2), at + 10)
            text = f"stored: {self._spell_text(ids[around])!r}, rendered: {self._spell_text(best[around])!r}"
            self.found.differ.append((placed.chunk.origin(row), text))

    def _ids_and_plain_messages_of_row(
        self, placed: PlacedChunk, row: int
    ) -> tuple[Ints, list[Message]]:
        """(ids without BOS, messages); no messages where the row is no single conversation of plain turns."""
        chunk, turns = placed.chunk, placed.turns
        start, end = int(chunk.offsets[row]), int(chunk.offsets[row + 1])
        text = ~placed.padding[start:end] & self._mask_without_bos(placed.source[start:end])
        row_turns = turns.select(turns.row == row)
        roles = [Source(int(role)) for role in row_turns.role]
        if (
            # Packs, tool calls and cut conversations are not rendered: their difference would be
            # one of this reading, not of the template.
            end - start > MAX_ROW_TOKENS
            or not _do_roles_alternate_plainly(roles)
            or chunk.borders[start + 1 : end].any()
        ):
            return chunk.ids[:0], []
        messages: list[Message] = []
        before = chunk.ids[start : int(row_turns.header[0])][
            placed.source[start : int(row_turns.header[0])] == Source.SYSTEM
        ]
        if len(before):
            messages.append(
                {
                    "role": "system",
                    "content": self._spell_bytes(before).decode("utf-8", "replace").strip(),
                }
            )
        for role, first, last in zip(
            roles, row_turns.start.tolist(), row_turns.end.tolist(), strict=True
        ):
            content = self._spell_text(chunk.ids[first:last])
            messages.append({"role": ROLE_NAMES[role], "content": content.strip()})
        return chunk.ids[start:end][text], messages

    def _mask_without_bos(self, source: NDArray[np.uint8]) -> Mask:
        """Which tokens are not BOS: a missing or second BOS is a finding of its own."""
        return (
            np.full(len(source), True)
            if self._layout.bos_opens_turns
            else np.asarray(source != Source.BOS)
        )

    def _render_ids(self, messages: list[Message]) -> Ints | None:
        """The ids that the template gives for these messages; None where it refuses them."""
        row = Conversation(Origin("ids", 1, 0), "messages", messages)
        try:
            encoded = make_batch(
                [row], self._probes.renderer(history="single"), self._encoder, exact=True
            )
        except TruetuneError:
            return None
        if encoded.rejected or len(encoded.examples) != 1:
            return None
        return np.asarray(encoded.ids[self._mask_without_bos(encoded.source)], np.int64)


def _holds_bytes_no_text_has(piece: bytes) -> bool:
    """Are there bytes inside that are no UTF-8, or control characters? The ids of a text never spell them; a cut one
    may begin or end within a character."""
    # The character that stands for broken bytes may be in the text itself, as three bytes: those
    # are no fault.
    text = piece.decode("utf-8", "replace").strip("\ufffd")
    inside = text.replace("\ufffd", "") if b"\xef\xbf\xbd" in piece else text
    return "\ufffd" in inside or any(c < " " and c not in "\n\t\r\f\v\x1b" for c in inside)


def _do_roles_alternate_plainly(roles: list[Source]) -> bool:
    """Do the roles alternate as in a plain conversation: a question first, or a system text and a
    question, then turn by turn?
    """
    turns = roles[1:] if roles[:1] == [Source.SYSTEM] else roles
    expected = [Source.USER, Source.ASSISTANT] * len(turns)
    return len(turns) > 1 and turns == expected[: len(turns)]


def _messages_also_without_template_text(messages: list[Message]) -> Iterator[list[Message]]:
    """The messages, and without what a template may write into its system turn by itself (a date, a default)."""
    yield messages
    if messages[0]["role"] == "system":
        yield messages[1:]
        own = str(messages[0]["content"]).rpartition("\n\n")[2]
        # The date or default stands before the row's own text, parted by an empty line (Llama 3).
        yield [{**messages[0], "content": own}, *messages[1:]]


def _common_prefix_length(one: Ints, other: Ints) -> int:
    """How many ids two sequences share at their beginning."""
    size = min(len(one), len(other))
    differ = np.flatnonzero(one[:size] != other[:size])
    return int(differ[0]) if len(differ) else size


def _is_shorter_the_beginning_of_longer(stored: Ints, rendered: NDArray[np.int64]) -> bool:
    """Is the shorter the beginning of the longer? A row may be cut, or lack a line break behind its last stop."""
    size = min(len(stored), len(rendered))
    # Two tokens: a line break behind the stop, or a stop and a line break.
    short = abs(len(stored) - len(rendered)) <= 2 or len(stored) < len(rendered)
    return _common_prefix_length(stored, rendered) == size and short
