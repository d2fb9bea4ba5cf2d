"""Finds which source each token of tokenized rows is from, by the template's headers and stop
tokens.

All rows of a chunk are placed at once: the ids become bytes, the headers are searched in them, and turns are ranges
between a header and the first token that closes it. Nothing runs in Python for each token.

The trade-off: a header that was written as ordinary text inside a content looks like a turn where the template has no
added token in it. Where it has one, the token must be there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truetune.encoding.token_bytes import TokenBytes
from truetune.render.rendering import Source
from truetune.render.template_probes import Probes
from truetune.tokenized.find_turn_layout_of_template import TurnLayout, find_turn_layout
from truetune.tokenized.read_tokenized_rows_in_chunks import Chunk, Ints, Mask


@dataclass(frozen=True)
class Turns:
    """The turns of a chunk, in order: (turns,) each, indices of the chunk's tokens."""

    role: NDArray[np.uint8]
    header: Ints
    """Where the header begins"""
    start: Ints
    """Where the content begins"""
    end: Ints
    """One past the content"""
    stop: Ints
    """The token that closes it; -1 where nothing does"""
    row: Ints

    def select(self, kept: Mask) -> Turns:
        """The turns that a mask keeps."""
        return Turns(
            self.role[kept],
            self.header[kept],
            self.start[kept],
            self.end[kept],
            self.stop[kept],
            self.row[kept],
        )


@dataclass(frozen=True)
class PlacedChunk:
    """A chunk with the source of each of its tokens, and its turns."""

    chunk: Chunk
    valid: Mask
    """Is the id in the vocabulary?"""
    padding: Mask
    """Places before or behind all text of a row"""
    source: NDArray[np.uint8]
    turns: Turns
    spelled_headers: int
    """Headers that stand there as ordinary text, not as the tokens that the template writes"""


class TokenPlacer:
    """Finds the sources of a chunk's tokens by one tokenizer and template."""

    def __init__(self, probes: Probes) -> None:
        special = probes.tokenizer.special
        self.vocabulary = TokenBytes(probes.tokenizer.backend)
        self.layout: TurnLayout = find_turn_layout(probes)
        self.stops = frozenset(stop.id for stop in probes.stops)
        # None where there is none: then nothing but the attention mask tells padding.
        self.pad = special["pad"].id if "pad" in special else None
        self.bos = special["bos"].id if "bos" in special else None
        added = probes.tokenizer.backend.get_added_tokens_decoder()
        self.control = np.array(
            sorted(id for id, token in added.items() if token.special), np.int64
        )

    def place(self, chunk: Chunk) -> PlacedChunk:
        """The chunk with the sources and turns of its tokens."""
        # Ids beyond the vocabulary would index out of the table of bytes; they are counted, and
        # read as id 0.
        valid = (chunk.ids >= 0) & (chunk.ids < len(self.vocabulary.lengths))
        padding = self._find_padding(chunk)
        turns, spelled = self._find_turns_and_count_lookalikes(chunk, valid, padding)
        source = (
            self._assign_sources(chunk, padding, turns) if chunk.sources is None else chunk.sources
        )
        return PlacedChunk(chunk, valid, padding, source, turns, spelled)

    def _find_padding(self, chunk: Chunk) -> Mask:
        """(tokens,) which are padding: what the attention mask hides at the ends of rows, else runs
        of the pad token there.
        """
        # A mask that is 1 throughout says nothing: it was made before the padding.
        if chunk.attended is not None and not chunk.attended.all():
            return _places_before_and_behind_text(chunk, chunk.attended)
        if self.pad is None:
            return np.zeros(len(chunk.ids), np.bool_)
        outside = _places_before_and_behind_text(chunk, chunk.ids != self.pad)
        if self.pad in self.stops:
            # The pad is a stop token: the first of a run of them may end the text.
            first = outside.copy()
            first[1:] &= ~outside[:-1]
            first[chunk.offsets[:-1]] = (
                False  # at the beginning of a row none of them ends anything
            )
            outside &= ~first
        return outside

    def _find_turns_and_count_lookalikes(
        self, chunk: Chunk, valid: Mask, padding: Mask
    ) -> tuple[Turns, int]:
        """(the turns of a chunk, how many texts are only spelled like a header)."""
        pattern = self.layout.header_bytes_pattern
        if pattern is None or not len(chunk.ids):
            return _empty_turns(), 0
        ids = np.where(valid, chunk.ids, 0).astype(np.int32)
        # One text for the whole chunk: a header can't reach over a row's end, since what it finds
        # is checked against rows below.
        text = self.vocabulary.bytes(ids)
        begins = np.concatenate(([0], np.cumsum(self.vocabulary.lengths_of(ids), dtype=np.int64)))
        matches = [
            (match.start(), match.end(), match.lastindex or 1)
            for match in pattern.finditer(text.tobytes())
        ]
        if not matches:
            return _empty_turns(), 0
        starts, ends, numbers = np.array(matches, np.int64).T
        # From bytes back to tokens: the token in which the header begins, and the first that begins
        # behind its end.
        header = np.searchsorted(begins, starts, side="right") - 1
        content = np.searchsorted(begins, ends, side="left")
        row = chunk.rows_of_tokens(header)
        roles = np.array([int(one.role) for one in self.layout.headers], np.uint8)[numbers - 1]
        firsts = np.array([-1 if one.first is None else one.first for one in self.layout.headers])[
            numbers - 1
        ]
        # `<|im_start|>` spelled with ordinary tokens is text that somebody wrote, and no turn.
        real = (firsts < 0) | (chunk.ids[header] == firsts)
        inside = (content <= chunk.offsets[row + 1]) & ~padding[header]
        kept = real & inside
        return self._turns_with_their_ends(
            chunk, padding, roles[kept], header[kept], content[kept]
        ), int((inside & ~real).sum())

    def _turns_with_their_ends(
        self, chunk: Chunk, padding: Mask, role: NDArray[np.uint8], header: Ints, content: Ints
    ) -> Turns:
        """The turns with their ends: the first token that closes their role, else the next header
        or the row's end.
        """
        row = chunk.rows_of_tokens(header)
        text_end = _ends_of_text_by_row(chunk, padding)[row]
        # A turn that nothing closes ends where the next one begins.
        following = np.append(header[1:], len(chunk.ids))
        limit = np.minimum(following, text_end)
        stop = np.full(len(header), -1, np.int64)
        for one in np.unique(role).tolist():
            is_role = role == one
            # Each role has its own: Llama 3's `<|eot_id|>` closes all, `<|eom_id|>` a call alone.
            closers = np.flatnonzero(
                np.isin(chunk.ids, list(self.layout.closers.get(Source(one), self.stops)))
            )
            # The first closer at or behind the content; the sentinel stands for none.
            places = np.append(closers, len(chunk.ids))[np.searchsorted(closers, content[is_role])]
            stop[is_role] = np.where(places < limit[is_role], places, -1)
        end = np.maximum(np.where(stop >= 0, stop, limit), content)
        return Turns(role, header, content, end, stop, row)

    def _assign_sources(self, chunk: Chunk, padding: Mask, turns: Turns) -> NDArray[np.uint8]:
        """(tokens,) the source of each token."""
        source = np.full(len(chunk.ids), Source.TEXT, np.uint8)
        rows = np.unique(turns.row)
        if len(rows):
            in_chats = np.zeros(len(chunk.lengths), np.bool_)
            in_chats[rows] = True
            # In a chat, what no turn holds is the template's; in plain text all is text.
            source[np.repeat(in_chats, chunk.lengths)] = Source.TEMPLATE
            self._assign_headerless_system_text(chunk, turns, source)
        _assign_ranges(source, turns.start, turns.end, turns.role)
        closed = turns.stop >= 0
        answers = closed & (turns.role == Source.ASSISTANT)
        # Only the answer's stop token is one that the model must write.
        source[turns.stop[closed]] = Source.TEMPLATE
        source[turns.stop[answers]] = Source.STOP
        ends_text = (source == Source.TEXT) & np.isin(chunk.ids, list(self.stops)) & ~padding
        source[ends_text] = Source.STOP
        if self.bos is not None and not self.layout.bos_opens_turns:
            is_bos = chunk.ids == self.bos
            begins = is_bos & chunk.borders
            # A doubled BOS is BOS too, for a rule counts it; further ones are not.
            second = np.append(False, begins[:-1]) & is_bos
            source[begins | second] = Source.BOS
        return source

    def _assign_headerless_system_text(
        self, chunk: Chunk, turns: Turns, source: NDArray[np.uint8]
    ) -> None:
        """Assign the text before the first header of a row to a system text, where the template
        writes it without a header.
        """
        rows, first = np.unique(turns.row, return_index=True)
        # Where system texts have a header, text before the first header is nothing that the
        # template writes.
        role = Source.OTHER if self.layout.has_header_for_role(Source.SYSTEM) else Source.SYSTEM
        starts, ends = chunk.offsets[rows], turns.header[first]
        _assign_ranges(source, starts, ends, np.full(len(rows), role, np.uint8))
        source[np.isin(chunk.ids, self.control) & (source == role)] = Source.TEMPLATE


def _empty_turns() -> Turns:
    """The turns of a chunk without any."""
    empty = np.zeros(0, np.int64)
    return Turns(empty.astype(np.uint8), empty, empty, empty, empty, empty)


def _assign_ranges(
    source: NDArray[np.uint8], starts: Ints, ends: Ints, values: NDArray[np.uint8]
) -> None:
    """Give the tokens of each range its value."""
    lengths = ends - starts
    first = np.cumsum(lengths) - lengths
    places = np.repeat(starts - first, lengths) + np.arange(int(lengths.sum()))
    source[places] = np.repeat(values, lengths)


def _places_before_and_behind_text(chunk: Chunk, text: Mask) -> Mask:
    """(tokens,) the places of each row before its first or behind its last place of text."""
    count = len(text)
    if not count:
        return np.zeros(0, np.bool_)
    at = np.arange(count)
    # reduceat gives one value for each row; rows are never empty here, else it would give its
    # neighbour's.
    first = np.minimum.reduceat(np.where(text, at, count), chunk.offsets[:-1])
    last = np.maximum.reduceat(np.where(text, at, -1), chunk.offsets[:-1])
    return np.asarray(
        (at < np.repeat(first, chunk.lengths)) | (at > np.repeat(last, chunk.lengths))
    )


def _ends_of_text_by_row(chunk: Chunk, padding: Mask) -> Ints:
    """(rows,) one past the last token of text."""
    if not len(padding):
        return chunk.offsets[1:]
    last = np.maximum.reduceat(np.where(padding, -1, np.arange(len(padding))), chunk.offsets[:-1])
    return np.asarray(np.maximum(last + 1, chunk.offsets[:-1]))
