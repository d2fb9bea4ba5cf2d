"""Counts what all chunks of tokenized rows hold.

Chunks are counted as they pass, so that memory grows with the longest row alone. Of each kind of row the number is kept
and the first places; a rule that needs more reads the rows again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from truetune.data.conversation import Origin
from truetune.encoding.token_counts import Ledger, count_tokens
from truetune.render.rendering import IGNORED, Source
from truetune.tokenized.find_token_sources import PlacedChunk, TokenPlacer
from truetune.tokenized.read_tokenized_rows_in_chunks import Chunk, Ints, Mask

# Chosen, not measured: a report shows some ten, and a page can list these.
MAX_KEPT_ROWS = 200
"""Rows of each kind that are kept as places"""
PROMPT_SOURCES = (Source.SYSTEM, Source.USER, Source.TOOL_RESULT)
"""What a model is given, and must not learn to write"""


@dataclass
class RowPlaces:
    """How many rows are of a kind, and the first of them."""

    count: int = 0
    first: list[tuple[Origin, str]] = field(default_factory=list)

    def add(
        self, chunk: Chunk, rows: Ints, text: str = "", *, texts: Iterable[str] | None = None
    ) -> None:
        """Count rows, and keep the first ones.

        Args:
            chunk: that holds them.
            rows: their places in it.
            text: what is to be said of each.
            texts: the same, where it is not one text for all; read only as far as rows are kept.
        """
        rows = np.asarray(rows)
        self.count += len(rows)
        # Texts may be a generator: only as many are made as are kept.
        room = MAX_KEPT_ROWS - len(self.first)
        notes = list(texts) if texts is not None else [text] * min(len(rows), room)
        for row, of_row in zip(rows[: max(room, 0)].tolist(), notes, strict=False):
            self.first.append((chunk.origin(row), of_row))


@dataclass
class AnswerCounts:
    """Counts of the answers of which at least a token is in the loss, or could be."""

    total: int = 0
    learned: int = 0
    """With a supervised token of their content"""
    partly: int = 0
    """With a part of their content left out, thinking at their beginning aside"""
    headers: int = 0
    """Learned ones with a supervised token in their header"""
    closed: int = 0
    """Learned ones that a stop token ends"""
    stops_learned: int = 0
    """... which is in the loss"""
    open: int = 0
    """Learned ones without a stop token, which are not at the end of their row"""


class TokenizedSummary:
    """Counts over all tokenized rows, which grow chunk by chunk."""

    def __init__(self, placer: TokenPlacer) -> None:
        self._placer = placer
        self._stops = np.array(sorted(placer.stops), np.int64)
        self.rows = self.tokens = self.documents = 0
        self.counts: NDArray[np.int64] = np.zeros((len(Source), 2), np.int64)
        self.labels = False
        """Is there a column of labels?"""
        self.masks: Counter[str] = Counter()
        self.broken = 0
        self.broken_rows: list[tuple[Origin, str]] = []
        self.padding = self.padding_supervised = self.padding_attended = 0
        self.padded = RowPlaces()
        self.without_label, self.all_supervised = RowPlaces(), RowPlaces()
        self.chats = 0
        """Rows with a turn"""
        self.answers = AnswerCounts()
        self.cut_answers = RowPlaces()
        self.prompts_learned = RowPlaces()
        self.headers_learned, self.stops_masked, self.partly = RowPlaces(), RowPlaces(), RowPlaces()
        self.labels_compared = self.labels_differ = self.labels_shifted = 0
        self.odd_labels = RowPlaces()
        self.beyond = RowPlaces()
        self.highest = -1
        self.headers_as_text = 0
        self.begins_with_bos = self.begins_with_two = self.bos_inside = 0
        self.two_bos, self.without_bos = RowPlaces(), RowPlaces()
        self.joined = RowPlaces()
        """Rows that hold several documents, and no column that parts them"""
        self.parted = 0
        """Rows whose documents a column parts"""
        self.lengths: NDArray[np.int64] = np.zeros(1, np.int64)
        self.open_lengths: NDArray[np.int64] = np.zeros(1, np.int64)
        """By length: rows whose text ends without a stop token"""
        self.open_rows = RowPlaces()
        self.control_seen: Counter[int] = Counter()
        """Control tokens that occur, without padding"""

    def ledger(self) -> Ledger:
        """Tokens by source, without padding."""
        return Ledger(self.counts.copy())

    @property
    def do_rows_say_which_tokens_are_learned(self) -> bool:
        """Do the rows say which tokens are learned, by a column of labels or a mask?"""
        return self.labels or bool(self.masks)

    def add(self, placed: PlacedChunk) -> None:
        """Add the counts of the next chunk."""
        chunk = placed.chunk
        self.broken += len(chunk.broken)
        self.broken_rows += chunk.broken[: MAX_KEPT_ROWS - len(self.broken_rows)]
        if not len(chunk.ids):
            return
        text = ~placed.padding
        self.rows += len(chunk.rows)
        self.tokens += int(text.sum())
        self.labels |= chunk.labels is not None
        self.masks.update(chunk.masks)
        self.counts += count_tokens(placed.source[text], chunk.supervised[text]).counts
        self.highest = max(self.highest, int(chunk.ids.max()))
        control = chunk.ids[text & np.isin(chunk.ids, self._placer.control)]
        control_ids, times = np.unique(control, return_counts=True)
        self.control_seen.update(dict(zip(control_ids.tolist(), times.tolist(), strict=True)))
        self.headers_as_text += placed.spelled_headers
        self._count_padding_learned_or_attended(placed)
        self._count_rows_by_learning_and_end(placed, text)
        self._count_labels_unlike_own_id(chunk, text)
        self._count_rows_by_leading_bos(chunk, placed)
        self._count_documents_and_unseparated_rows(chunk, placed)
        answers = _assistant_turns_or_label_ranges(placed, self._stops)
        if answers is not None:
            self._count_answers_by_learned_parts(placed, answers)
        self._count_rows_with_learned_prompt(placed)

    def _count_padding_learned_or_attended(self, placed: PlacedChunk) -> None:
        """Count pads, and those that are learned or attended to."""
        chunk, pads = placed.chunk, placed.padding
        self.padding += int(pads.sum())
        self.padding_supervised += int((pads & chunk.supervised).sum())
        # Without a mask, every pad is attended to.
        if chunk.attended is None:
            self.padding_attended += int(pads.sum())
        self.padded.add(
            chunk,
            np.unique(chunk.rows_of_tokens(np.flatnonzero(pads))),
            "padding is stored with the row",
        )

    def _count_rows_by_learning_and_end(self, placed: PlacedChunk, text: Mask) -> None:
        """Count rows by what is learned of them and how they end."""
        chunk = placed.chunk
        of_row = np.add.reduceat(text, chunk.offsets[:-1])
        supervised = np.add.reduceat(chunk.supervised & text, chunk.offsets[:-1])
        self.chats += len(np.unique(placed.turns.row))
        self.without_label.add(
            chunk, np.flatnonzero((supervised == 0) & (of_row > 0)), "no token is in the loss"
        )
        self.all_supervised.add(
            chunk, np.flatnonzero((supervised == of_row) & (of_row > 0)), "every token is learned"
        )
        self.beyond.add(
            chunk,
            np.unique(chunk.rows_of_tokens(np.flatnonzero(~placed.valid))),
            texts=_describe_first_id_beyond_vocabulary(placed),
        )
        # A histogram, not a list: a cache may have millions of rows.
        self.lengths = _sum_of_histograms(self.lengths, np.bincount(of_row))
        last = _last_text_position(chunk, text)
        # The last token is a stop, or only template text stands behind a turn that was closed.
        ended = np.isin(chunk.ids[last], self._stops) | _ends_with_closed_turn_or_header(
            placed, last
        )
        is_open = np.flatnonzero(~ended & (of_row > 0))
        self.open_lengths = _sum_of_histograms(self.open_lengths, np.bincount(of_row[is_open]))
        self.open_rows.add(
            chunk,
            is_open,
            texts=(f"{of_row[row]:,} tokens, and no stop token at the end" for row in is_open),
        )

    def _count_labels_unlike_own_id(self, chunk: Chunk, text: Mask) -> None:
        """Count labels that differ from the id of their own position: a trainer shifts them, so
        that they must not.
        """
        if chunk.labels is None:
            return
        learned = chunk.supervised & text
        differ = learned & (chunk.labels != chunk.ids)
        self.labels_compared += int(learned.sum())
        self.labels_differ += int(differ.sum())
        # Labels that equal the next id were shifted before they were stored; the trainer shifts
        # them once more.
        following = np.append(chunk.ids[1:], IGNORED)
        self.labels_shifted += int((differ & (chunk.labels == following)).sum())
        self.odd_labels.add(
            chunk, np.unique(chunk.rows_of_tokens(np.flatnonzero(differ))), "labels of other tokens"
        )

    def _count_rows_by_leading_bos(self, chunk: Chunk, placed: PlacedChunk) -> None:
        """Count rows that begin with no BOS, one or two."""
        bos = self._placer.bos
        if bos is None:
            return
        starts = _first_text_position(chunk, ~placed.padding)
        first = chunk.ids[starts] == bos
        # A row of one token has no second: it is compared with itself, and left out below.
        second = chunk.ids[np.minimum(starts + 1, chunk.offsets[1:] - 1)] == bos
        twice = first & second & (starts + 1 < chunk.offsets[1:])
        self.begins_with_bos += int(first.sum())
        self.begins_with_two += int(twice.sum())
        self.two_bos.add(chunk, np.flatnonzero(twice), "it begins with two BOS tokens")
        self.without_bos.add(chunk, np.flatnonzero(~first), "it begins without BOS")

    def _count_documents_and_unseparated_rows(self, chunk: Chunk, placed: PlacedChunk) -> None:
        """Count documents, and rows in which several are not separated."""
        text = ~placed.padding
        borders = chunk.borders & text
        per_row = np.add.reduceat(borders, chunk.offsets[:-1])
        seen = _count_documents_by_tokens(placed, self._placer)
        self.documents += int(np.maximum(per_row, seen).sum())
        self.parted += int((per_row > 1).sum())
        # The tokens show several documents and no column parts them: they see each other.
        several = np.flatnonzero((seen > 1) & (per_row <= 1))
        self.joined.add(
            chunk, several, texts=(f"{seen[row]:,} documents in one row" for row in several)
        )

    def _count_answers_by_learned_parts(self, placed: PlacedChunk, answers: _Answers) -> None:
        """Count answers by what of them, their headers and their stop tokens is learned."""
        chunk, count = placed.chunk, self.answers
        count.total += len(answers.start)
        some = answers.supervised > 0
        count.learned += int(some.sum())
        closed = some & (answers.stop >= 0)
        # For open answers the index is -1, which reads the chunk's last token; `closed` takes it
        # out.
        learns_stop = closed & chunk.supervised[answers.stop]
        count.closed += int(closed.sum())
        count.stops_learned += int(learns_stop.sum())
        self.stops_masked.add(
            chunk,
            answers.row[closed & ~learns_stop],
            "the answer is learned, its stop token is not",
        )
        with_header = some & (answers.header_supervised > 0)
        count.headers += int(with_header.sum())
        self.headers_learned.add(
            chunk, answers.row[with_header], "the header of the answer is learned"
        )
        partly = some & answers.gap
        count.partly += int(partly.sum())
        self.partly.add(chunk, answers.row[partly], "a part of the answer is left out")
        # At the end of a row an answer may have been cut by the length, which another rule reports.
        inside = some & (answers.stop < 0) & ~answers.at_end
        count.open += int(inside.sum())
        self.cut_answers.add(chunk, answers.row[inside], "no stop token ends the answer")

    def _count_rows_with_learned_prompt(self, placed: PlacedChunk) -> None:
        """Count rows in which text that the model is given is learned."""
        turns = placed.turns
        prompts = turns.select(np.isin(turns.role, PROMPT_SOURCES) & (turns.end > turns.start))
        if not len(prompts.row):
            return
        learned = _count_in_ranges(placed.chunk.supervised, prompts.start, prompts.end) > 0
        # The first turn of each row names the role.
        rows, first = np.unique(prompts.row[learned], return_index=True)
        roles = prompts.role[learned][first]
        texts = (f"{Source(int(role)).label} text is learned" for role in roles)
        self.prompts_learned.add(placed.chunk, rows, texts=texts)


@dataclass(frozen=True)
class _Answers:
    """The answers of a chunk, (answers,) each."""

    row: Ints
    start: Ints
    stop: Ints
    supervised: Ints
    header_supervised: Ints
    gap: Mask
    at_end: Mask
    """Does the row's text end with it?"""


def _assistant_turns_or_label_ranges(placed: PlacedChunk, stops: Ints) -> _Answers | None:
    """The assistant's turns; of rows without turns the range of their labels."""
    chunk, turns = placed.chunk, placed.turns
    assistant_turns = turns.select((turns.role == Source.ASSISTANT) & (turns.end > turns.start))
    row, header, start, end, stop = (
        assistant_turns.row,
        assistant_turns.header,
        assistant_turns.start,
        assistant_turns.end,
        assistant_turns.stop,
    )
    # Rows of plain text and of templates that are not known: their labels say where the answer is.
    plain = _supervised_ranges_as_answers(placed, stops)
    row, header, start, end, stop = (
        np.concatenate(pair) for pair in zip((row, header, start, end, stop), plain, strict=True)
    )
    if not len(row):
        return None
    supervised = _count_in_ranges(chunk.supervised, start, end)
    ends = _last_text_position(chunk, ~placed.padding)[row]
    return _Answers(
        row,
        start,
        stop,
        supervised,
        _count_in_ranges(chunk.supervised, header, start),
        _answers_with_unlearned_gap(chunk.supervised, start, end, supervised),
        np.maximum(end - 1, stop) >= ends,
    )


def _supervised_ranges_as_answers(
    placed: PlacedChunk, stops: Ints
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """(row, header, start, end, stop) of rows without turns of which a part is in the loss, a prompt before it."""
    chunk = placed.chunk
    is_chat = np.zeros(len(chunk.rows), np.bool_)
    is_chat[placed.turns.row] = True
    learned = chunk.supervised & ~placed.padding
    count = len(learned)
    at = np.arange(count)
    first = np.minimum.reduceat(np.where(learned, at, count), chunk.offsets[:-1])
    last = np.maximum.reduceat(np.where(learned, at, -1), chunk.offsets[:-1])
    # Something must stand before the labels: a row that is learned whole is text, not an answer.
    rows = np.flatnonzero((last >= 0) & ~is_chat & (first > chunk.offsets[:-1]))
    start, end = first[rows], last[rows] + 1
    # A stop as the only label is no answer with a stop.
    is_stop = np.isin(chunk.ids[end - 1], stops) & (end - 1 > start)
    behind = np.minimum(end, count - 1)
    unlearned = ~is_stop & (end < chunk.offsets[rows + 1]) & np.isin(chunk.ids[behind], stops)
    stop = np.where(is_stop, end - 1, np.where(unlearned, behind, -1))
    return rows, start, start, np.where(is_stop, end - 1, end), stop


def _answers_with_unlearned_gap(supervised: Mask, start: Ints, end: Ints, learned: Ints) -> Mask:
    """(answers,) is a token left out after the first that is learned? What comes before it may be
    thinking that is given.
    """
    # The first learned token at or behind the start of each answer, by bisection.
    reach = np.append(np.flatnonzero(supervised), len(supervised))
    first = reach[np.searchsorted(reach, start)]
    return np.asarray((learned > 0) & (learned < end - np.minimum(first, end)))


def _count_in_ranges(mask: Mask, start: Ints, end: Ints) -> Ints:
    """How many values of a mask are true in each range."""
    # Running sums: each range is then one subtraction.
    total = np.concatenate(([0], np.cumsum(mask, dtype=np.int64)))
    return np.asarray(total[end] - total[start])


def _last_text_position(chunk: Chunk, text: Mask) -> Ints:
    """(rows,) the last position of text; the first position of a row without any."""
    last = np.maximum.reduceat(np.where(text, np.arange(len(text)), -1), chunk.offsets[:-1])
    return np.asarray(np.maximum(last, chunk.offsets[:-1]))


def _first_text_position(chunk: Chunk, text: Mask) -> Ints:
    """(rows,) the first position of text; the last position of a row without any."""
    first = np.minimum.reduceat(np.where(text, np.arange(len(text)), len(text)), chunk.offsets[:-1])
    return np.asarray(np.minimum(first, chunk.offsets[1:] - 1))


def _ends_with_closed_turn_or_header(placed: PlacedChunk, last: Ints) -> Mask:
    """(rows,) is the last turn closed, with nothing but template text behind it: a line break, or a header without an
    answer, which some templates always end with?"""
    turns = placed.turns.select(placed.turns.end > placed.turns.start)
    closed = np.zeros(len(last), np.bool_)
    # np.unique gives the first of each value: of the reversed turns that is the last one.
    rows, first = np.unique(turns.row[::-1], return_index=True)
    final = len(turns.row) - 1 - first
    closed[rows] = (turns.stop[final] >= 0) & (placed.source[last[rows]] == Source.TEMPLATE)
    return closed


def _count_documents_by_tokens(placed: PlacedChunk, placer: TokenPlacer) -> Ints:
    """(rows,) how many documents a row holds by its tokens: a BOS, or a stop of a whole text, inside of it.

    In a chat, a system turn behind another turn begins a new one.
    """
    chunk, turns = placed.chunk, placed.turns
    seen = np.ones(len(chunk.rows), np.int64)
    text = ~placed.padding
    if placer.bos is not None and not placer.layout.bos_in_every_turn:
        begins = (chunk.ids == placer.bos) & text
        # A doubled BOS begins one document.
        begins[1:] &= ~begins[:-1]
        begins &= placed.source != Source.STOP
        seen = np.maximum(seen, np.add.reduceat(begins, chunk.offsets[:-1]))
    system = np.bincount(turns.row[turns.role == Source.SYSTEM], minlength=len(seen))
    is_chat = np.zeros(len(seen), np.bool_)
    is_chat[turns.row] = True
    ends = np.isin(chunk.ids, list(placer.stops)) & text
    last = _last_text_position(chunk, text)
    # The stop at the end of the row ends its last document, and begins none.
    ends[last] = False
    ends[1:] &= ~ends[:-1]
    texts = np.add.reduceat(ends, chunk.offsets[:-1]) + 1
    return np.asarray(np.maximum(seen, np.where(is_chat, system, texts)))


def _describe_first_id_beyond_vocabulary(placed: PlacedChunk) -> list[str]:
    """For each row the first id that is not in the vocabulary, as text for its place."""
    chunk = placed.chunk
    places = np.flatnonzero(~placed.valid)
    _, first = np.unique(chunk.rows_of_tokens(places), return_index=True)
    return [f"id {chunk.ids[place]}" for place in places[first][:MAX_KEPT_ROWS].tolist()]


def _sum_of_histograms(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    """Two histograms added; the longer one gives the length."""
    total = np.zeros(max(len(one), len(other)), np.int64)
    total[: len(one)] += one
    total[: len(other)] += other
    return total
