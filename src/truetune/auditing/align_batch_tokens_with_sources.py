"""Aligns each token of a recorded batch with where it came from.

A line is cut into its documents. Each is compared with the renderings of the given rows (equal ids prove the source of
every token); what is none is searched for the texts of rows; what holds none is read by the template's markers. The
trade-off: three ways, each weaker than the one before, and `placed_by` says which, so that rules can ask for proof.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.auditing.audit import Field, Sample
from truetune.auditing.document_borders import number_documents
from truetune.auditing.expected_tokens_without_rendering import (
    TokenRange,
    expected_token_mask_by_fields,
    expected_token_mask_by_markers,
    find_answer_marker,
    find_answer_starts,
    mark_first_stop_after_answers,
)
from truetune.auditing.find_padding import PadToken
from truetune.auditing.find_rendered_rows_in_batch_ids import (
    RenderingIndex,
    RenderingMatch,
    assistant_token_mask,
    index_renderings,
)
from truetune.auditing.read_lines_of_recorded_batch import BatchLine, list_batch_lines
from truetune.auditing.recognise_rows_in_text import GivenRowIndex
from truetune.auditing.search_row_fields_in_text import FieldSpot, NormalizeText, SearchedText
from truetune.encoding.token_bytes import SPACE, TokenBytes
from truetune.probe.run_record import Record
from truetune.render.rendering import IGNORED, Source
from truetune.render.template_probes import Probes

# A stop token or a line break behind it; more than two is text of its own.
MAX_EXTRA_TOKENS = 2
"""Tokens behind a rendering that are taken for its own, such as an EOS more"""


PICTURE_ID_KEYS = ("image_token_id", "image_token_index", "video_token_id", "video_token_index")
"""Keys of config.json with the id that stands for a part of a picture or a video; an old one has the second name"""


def align_record(record: Record, probes: Probes | None, stops: frozenset[int]) -> Iterator[Sample]:
    """Every line of every batch of a record, with its tokens placed; none where the labels are of another text."""
    if not record.facts["model"]["config"].get("is_encoder_decoder"):
        yield from TokenAligner(record, probes, stops).list_samples()


@dataclass
class LineTokens:
    """A line while its tokens are being placed: (tokens,) each."""

    source: NDArray[np.uint8]
    field_index: NDArray[np.int32]
    """Index in `fields` of the text that each token is from; -1 for none"""
    expected: NDArray[np.bool_]
    """Must the model produce this token when served?"""
    known: NDArray[np.bool_]
    """Is it known what is expected?"""
    starts: NDArray[np.bool_]
    """Does a document begin here?"""
    fields: list[Field] = field(default_factory=list)
    cut: list[int] = field(default_factory=list)
    """Indices in `fields` of texts of which only a part stands here"""
    tokens_by_method: Counter[str] = field(default_factory=Counter)
    """How many tokens were placed by: rendering, fields, markers, or nothing (empty)"""


class LinePart(NamedTuple):
    """A range of a line, of one document as far as the batch tells."""

    start: int
    end: int
    rows: Sequence[int]
    """Numbers of the given rows that may stand in it"""
    hint: int | None
    """Number of the row that is expected here, by the order of the data; None where none is"""


class TokenAligner:
    """Places the lines of one record."""

    def __init__(self, record: Record, probes: Probes | None, stops: frozenset[int]) -> None:
        facts = record.facts
        special = facts["tokenizer"] or {}
        bos = special.get("bos")
        self.rank, self.stops, self.bos = int(facts["rank"]), stops, bos
        self.lines = list(list_batch_lines(record, PadToken(special.get("pad"), bos, stops)))
        self.rows = GivenRowIndex(
            dict(zip(facts["data"]["numbers"], record.rows, strict=True)), _make_normalizer(probes)
        )
        self._aligned = _have_given_and_prepared_same_row_count(facts["data"])
        self._answer_marker = find_answer_marker(probes)
        config = facts["model"]["config"]
        self._picture_ids = [config[key] for key in PICTURE_ID_KEYS if type(config.get(key)) is int]
        self._control_ids = probes.tokenizer.control if probes else frozenset()
        self._bytes_by_id = _spell_ids(self.lines, probes)
        # Only rows that may stand in the batches are rendered: a data set may have millions.
        self._rows_by_line = [
            self.rows.candidate_rows(
                self._bytes_spelled_by_ids(line.ids[~line.padding]), self._likely_row(line)
            )
            for line in self.lines
        ]
        wanted = {row for nearby_rows in self._rows_by_line for row in nearby_rows}
        self._renderings: RenderingIndex | None = index_renderings(
            probes,
            {
                row: conversation
                for row, conversation in self.rows.conversations.items()
                if conversation is not None and row in wanted
            },
        )

    def list_samples(self) -> Iterator[Sample]:
        """Its lines, in order."""
        for line, nearby_rows in zip(self.lines, self._rows_by_line, strict=True):
            yield self._align_line(line, nearby_rows)

    def _align_line(self, line: BatchLine, nearby_rows: list[int]) -> Sample:
        """One line with the source of each of its tokens."""
        size = len(line.ids)
        placed = LineTokens(
            np.zeros(size, np.uint8),
            np.full(size, -1, np.int32),
            np.zeros(size, np.bool_),
            np.zeros(size, np.bool_),
            line.starts.copy(),
        )
        for start, end in _document_ranges(line.starts, ~line.padding):
            self._place_document(
                line, LinePart(start, end, nearby_rows, self._likely_row(line)), placed
            )
        # No text becomes such an id, so that it is a picture's wherever it is found.
        placed.source[np.isin(line.ids, self._picture_ids) & ~line.padding] = Source.IMAGE
        supervised = line.labels != IGNORED if line.labels is not None else np.zeros(size, np.bool_)
        # Where one document of a pack is not recognised, its labels are taken for right: no rule may fire on it.
        expected = (
            np.where(placed.known, placed.expected, supervised & ~line.padding)
            if placed.known.any()
            else None
        )
        return Sample(
            rank=self.rank,
            batch=line.batch,
            line=line.line,
            ids=line.ids,
            labels=line.labels,
            attended=line.attended,
            positions=line.positions,
            documents=number_documents(placed.starts, ~line.padding),
            padding=line.padding,
            source=placed.source,
            field=placed.field_index,
            fields=tuple(placed.fields),
            expected=expected,
            # surrogateescape: a token may be half of a character, which must come back as the same bytes.
            pieces=tuple(
                self._bytes_by_id[i].decode("utf-8", "surrogateescape") for i in line.ids.tolist()
            ),
            side=line.side,
            placed_by=max(
                placed.tokens_by_method,
                key=lambda method: placed.tokens_by_method[method],
                default="",
            ),
            separated_by=line.separated_by,
            cut=tuple(placed.cut),
        )

    def _likely_row(self, line: BatchLine) -> int | None:
        """The given row that a line is likely to be."""
        return line.row if self._aligned and line.row in self.rows.fields else None

    def _place_document(self, line: BatchLine, part: LinePart, placed: LineTokens) -> None:
        """One document: its renderings first, and what lies between them by their texts."""
        ids = line.ids[part.start : part.end]
        matches = self._renderings.matches(ids, part.rows, part.hint) if self._renderings else []
        at, begun = part.start, False
        for match in matches:
            start, end = part.start + match.start, part.start + match.end
            if not self._is_nothing_or_bos_beside_rendering(
                line, at, start, placed, match, begun=begun
            ):
                self._place_by_row_texts_or_markers(
                    line, LinePart(at, start, part.rows, None), placed, begun=begun
                )
                begun = True
            self._place_rendered(line, start, match, placed)
            # The first begins where the batch says; each further one is a document that the batch does not part.
            placed.starts[start] |= begun
            at, begun = end, True
        if not (
            matches
            and self._is_nothing_or_bos_beside_rendering(
                line, at, part.end, placed, matches[-1], begun=begun
            )
        ):
            self._place_by_row_texts_or_markers(
                line, LinePart(at, part.end, part.rows, part.hint), placed, begun=begun
            )

    def _is_nothing_or_bos_beside_rendering(
        self,
        line: BatchLine,
        start: int,
        end: int,
        placed: LineTokens,
        match: RenderingMatch,
        *,
        begun: bool,
    ) -> bool:
        """Is this nothing, or a BOS or two more tokens than the rendering beside it has? They are not expected.

        `begun` says that a rendering stands before it: then a stop token or a line break more is that one's.
        """
        extra = line.ids[start:end]
        if start < end:
            is_short = begun and end - start <= MAX_EXTRA_TOKENS
            is_bos = (extra == self.bos).all()
            # After plain text anything may be text of the next row, so nothing there counts as an extra.
            if match.example.plain or not (is_short or is_bos):
                return False
        placed.source[start:end][extra == self.bos] = Source.BOS
        placed.known[start:end] = True
        return True

    def _place_rendered(
        self, line: BatchLine, start: int, match: RenderingMatch, placed: LineTokens
    ) -> None:
        """A range that is an example of a row, or a part of one: all is known of its tokens."""
        example, end = match.example, start + match.end - match.start
        example_range = slice(match.begin, match.begin + end - start)
        placed.source[start:end] = example.source[example_range]
        placed.tokens_by_method["rendering"] += end - start
        if example.plain:
            self._mark_expected_in_plain_text(line, start, end, placed)
        else:
            placed.expected[start:end], placed.known[start:end] = (
                example.supervised[example_range],
                True,
            )
        # The rendering tells the source of a token. Which field of the row it is from is told by the text.
        text = self._make_searchable_text(line, start, end)
        for spot in self.rows.find_fields(
            example.row, text, 0, len(text.text), cut=len(example.ids) > end - start
        ):
            inside = text.tokens_of(spot) + start
            self._assign_tokens_to_field(
                inside[placed.source[inside] != Source.TEMPLATE], example.row, spot, placed
            )

    def _mark_expected_in_plain_text(
        self, line: BatchLine, start: int, end: int, placed: LineTokens
    ) -> None:
        """Mark what is expected of plain text: behind markers of the template, where it has any; else stops alone."""
        part = self._token_range(line, start, end, placed)
        marks = find_answer_starts(part, self._answer_marker)
        if marks:
            placed.expected[start:end], placed.known[start:end] = (
                expected_token_mask_by_markers(part, marks, self.stops),
                True,
            )
        else:
            mark_first_stop_after_answers(part, self.stops)

    def _assign_tokens_to_field(
        self, tokens: NDArray[np.int64], row: int, spot: FieldSpot, placed: LineTokens
    ) -> None:
        """Note that these tokens are from a field of a row; each field is listed once."""
        wanted = self.rows.fields[row][spot.field]
        if not len(tokens):
            return
        if wanted not in placed.fields:
            placed.fields.append(wanted)
        number = placed.fields.index(wanted)
        placed.field_index[tokens] = number
        if spot.cut and number not in placed.cut:
            placed.cut.append(number)

    def _place_by_row_texts_or_markers(
        self, line: BatchLine, part: LinePart, placed: LineTokens, *, begun: bool = False
    ) -> None:
        """A range that is no rendering of a row: by the texts of rows, else by the template's markers."""
        start, end = part.start, part.end
        if start == end:
            return
        text = self._make_searchable_text(line, start, end)
        found_rows = self.rows.search(
            text, part.rows, part.hint, ended=int(line.ids[end - 1]) in self.stops
        )
        for number, (row, row_spots) in enumerate(found_rows):
            for spot in row_spots:
                inside = text.tokens_of(spot) + start
                placed.source[inside] = spot.source
                self._assign_tokens_to_field(inside, row, spot, placed)
            # A second row in one range: packed without borders, or borders that the batch does not show.
            if number or begun:
                placed.starts[start + self._first_token_of_row(line, text, row_spots, start)] = True
        # Text of no row (rows were not recorded, or the loop builds its own): still no template text.
        if not found_rows:
            plain = ~np.isin(line.ids[start:end], list(self._control_ids | self.stops))
            placed.source[start:end][plain] = Source.TEXT
        self._mark_all_bos_at_start(line, start, end, placed)
        self._mark_expected_without_rendering(line, start, end, placed, bool(found_rows))

    def _mark_all_bos_at_start(
        self, line: BatchLine, start: int, end: int, placed: LineTokens
    ) -> None:
        """All BOS at the beginning of a range, for there may be two of them by mistake."""
        while start < end and self.bos is not None and line.ids[start] == self.bos:
            placed.source[start] = Source.BOS
            start += 1

    def _mark_expected_without_rendering(
        self, line: BatchLine, start: int, end: int, placed: LineTokens, found_rows: bool
    ) -> None:
        """What the model must produce of a range without a rendering: by its answers' texts, else by markers."""
        part = self._token_range(line, start, end, placed)
        marks = find_answer_starts(part, self._answer_marker)
        # Texts of answers are surer than markers, which a user may have written.
        if assistant_token_mask(part.source).any():
            mark_first_stop_after_answers(part, self.stops)
            # Preference rows hold their prompt as messages, whose assistant turns are not to be learned.
            paths = [
                placed.fields[i].path if i >= 0 else ""
                for i in placed.field_index[start:end].tolist()
            ]
            prompt = np.array([path.startswith("prompt") for path in paths], np.bool_)
            placed.expected[start:end], placed.known[start:end] = (
                expected_token_mask_by_fields(part, marks, prompt),
                True,
            )
            placed.tokens_by_method["fields"] += end - start
        elif marks:
            placed.expected[start:end], placed.known[start:end] = (
                expected_token_mask_by_markers(part, marks, self.stops),
                True,
            )
            placed.tokens_by_method["fields" if found_rows else "markers"] += end - start
        else:
            mark_first_stop_after_answers(part, self.stops)
            placed.tokens_by_method["fields" if found_rows else ""] += end - start

    def _first_token_of_row(
        self, line: BatchLine, text: SearchedText, row_spots: list[FieldSpot], start: int
    ) -> int:
        """The token with which a row's text begins: behind the stop token before its first field."""
        first = int(text.tokens_of(min(row_spots, key=lambda spot: spot.start))[0])
        before = np.flatnonzero(np.isin(line.ids[start : start + first], list(self.stops)))
        return int(before[-1]) + 1 if len(before) else first

    def _token_range(self, line: BatchLine, start: int, end: int, placed: LineTokens) -> TokenRange:
        """A range of a line; its `source` is a view, so that what is written to it is written to the line."""
        ids = line.ids[start:end]
        return TokenRange(
            ids, tuple(self._bytes_by_id[i] for i in ids.tolist()), placed.source[start:end]
        )

    def _bytes_spelled_by_ids(self, ids: NDArray[np.int64]) -> bytes:
        """The bytes that these ids spell."""
        return b"".join(self._bytes_by_id[i] for i in ids.tolist())

    def _make_searchable_text(self, line: BatchLine, start: int, end: int) -> SearchedText:
        """The text of a range, nothing of it placed yet."""
        pieces = [self._bytes_by_id[i] for i in line.ids[start:end].tolist()]
        begins = np.cumsum([0, *map(len, pieces)])
        return SearchedText(b"".join(pieces), begins[:-1].tolist())


def _document_ranges(
    starts: NDArray[np.bool_], text: NDArray[np.bool_]
) -> Iterator[tuple[int, int]]:
    """(start, end) of each document of a line; `text` marks the tokens that are no padding."""
    places = np.flatnonzero(text)
    if not len(places):
        return
    begins = [int(i) for i in places if starts[i]] or [int(places[0])]
    yield from zip(begins, [*begins[1:], int(places[-1]) + 1], strict=True)


def _spell_ids(lines: list[BatchLine], probes: Probes | None) -> dict[int, bytes]:
    """What each id that occurs spells; an id beyond the vocabulary nothing."""
    ids = {int(i) for line in lines for i in np.unique(line.ids)}
    if probes is None:
        return dict.fromkeys(ids, b"")
    vocabulary = TokenBytes(probes.tokenizer.backend)
    return {i: vocabulary.spell(i) if i >= 0 else b"" for i in ids}


def _have_given_and_prepared_same_row_count(data: dict[str, dict[str, int | None] | None]) -> bool:
    """Have the given rows and the prepared ones the same number? Then they are likely to have the same order."""
    given, prepared = data.get("given"), data.get("prepared")
    return bool(
        given and prepared and given["rows"] is not None and given["rows"] == prepared["rows"]
    )


def _make_normalizer(probes: Probes | None) -> NormalizeText:
    """What the tokenizer makes of a text before it cuts it."""
    normalizer = probes.tokenizer.backend.normalizer if probes else None
    if normalizer is None:
        return str
    return lambda text: normalizer.normalize_str(text).replace(SPACE, " ")
