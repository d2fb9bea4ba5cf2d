"""Makes token rows of rows that are token ids already; the source of each token is told by the
template.

There is no text to compare with, so sources are found by what the chat template writes around messages. Where that is
not certain a token is template text or of no known source, and never of a guessed role.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.data.find_data_files import DataFile
from truetune.data.read_file_records import Record
from truetune.errors import TruetuneError
from truetune.render.template_probes import load_tokenizer_and_template_of_run
from truetune.report.page.json_of_one_examples_tokens import (
    TokenRow,
    labels_entry_where_unlike_ids,
    mask_bits,
    row_without_tokens,
    source_letters,
)
from truetune.settings.run_spec import RunSpec
from truetune.tokenized.find_token_sources import PlacedChunk, TokenPlacer
from truetune.tokenized.read_tokenized_rows_in_chunks import chunk_of_records
from truetune.viewing.row_index import SourcedRecords
from truetune.viewing.token_counts_of_rows import PADDING, RowCounts, TokensOfRows


class TokenIdRows:
    """Makes the token rows of records of token ids; not for several threads at once."""

    def __init__(self, spec: RunSpec) -> None:
        """Raises SpecError, TokenizerError or TemplateError."""
        self._spec = spec
        self._placer = TokenPlacer(load_tokenizer_and_template_of_run(spec))

    def rows(self, first: int, records: SourcedRecords) -> Iterator[list[TokenRow]]:
        """For each record its token row; `first` is the number of the first of them."""
        for number, (source, record) in enumerate(records, first):
            try:
                chunk = chunk_of_records(source, [record], number)
            except TruetuneError as error:
                yield [_token_row_with_error(number, source, record, str(error))]
                continue
            if chunk.broken or not len(chunk.rows):
                why = chunk.broken[0][1] if chunk.broken else "the row holds no ids"
                yield [_token_row_with_error(number, source, record, why)]
            else:
                yield [self._token_row(number, self._placer.place(chunk))]

    def token_counter(self, only_reference: bool) -> TokenIdCounter:
        """What counts the tokens of records; it takes no shortcuts.

        Raises SpecError, TokenizerError or TemplateError.
        """
        return TokenIdCounter(self._spec)

    def faulty(self, first: int, records: SourcedRecords) -> int | None:
        """The first record that can't be read, or teaches nothing; None where all are fine."""
        for number, rows in enumerate(self.rows(first, records), first):
            if any(row.get("error") or "1" not in row["supervised"] for row in rows):
                return number
        return None

    def searched_text(self, record: Record) -> str:
        """The text that a search looks at: what the ids spell."""
        ids = (record.row or {}).get("input_ids") or ()
        return b"".join(map(self._spell_id, ids)).decode("utf-8", "replace")

    def forget(self) -> None:
        """Do nothing, since nothing of the files is kept here."""

    def _spell_id(self, id: int) -> bytes:
        """The bytes that an id spells."""
        # Data by hand holds ids that no vocabulary has: they are shown as numbers, and are no
        # reason to refuse the row.
        known = isinstance(id, int) and 0 <= id < len(self._placer.vocabulary.lengths)
        return self._placer.vocabulary.spell(id) if known else f"<id {id}>".encode()

    def _token_row(self, number: int, placed: PlacedChunk) -> TokenRow:
        """The token row of one row of a chunk."""
        chunk = placed.chunk
        origin = chunk.origin(0)
        padding = placed.padding
        return {
            "row": number,
            "file": origin.file,
            "line": origin.line,
            "turn": None,
            "format": "token ids",
            "title": None,
            "ids": chunk.ids.tolist(),
            "pieces": [
                self._spell_id(id).decode("utf-8", "surrogateescape") for id in chunk.ids.tolist()
            ],
            "source": source_letters(placed.source),
            "supervised": mask_bits(chunk.supervised),
            "runs": [[0, "", -1, -1, None]],
            "padding": mask_bits(padding),
            "documents": np.where(padding, -1, np.cumsum(chunk.borders) - 1).tolist(),
            **({"attended": mask_bits(chunk.attended)} if chunk.attended is not None else {}),
            **labels_entry_where_unlike_ids(chunk.ids, chunk.labels),
        }


class TokenIdCounter:
    """Counts the tokens of rows of token ids; for one thread."""

    def __init__(self, spec: RunSpec) -> None:
        """Raises SpecError, TokenizerError or TemplateError."""
        self._placer = TokenPlacer(load_tokenizer_and_template_of_run(spec))

    def count(self, first: int, records: SourcedRecords) -> RowCounts:
        """The figures of records; one that can't be read has no tokens."""
        tokens = TokensOfRows()
        for place, (source, record) in enumerate(records):
            try:
                chunk = chunk_of_records(source, [record], first + place)
            except TruetuneError:
                continue
            if chunk.broken or not len(chunk.rows):
                continue
            placed = self._placer.place(chunk)
            kinds = np.where(placed.padding, np.uint8(PADDING), placed.source)
            tokens.add(place, kinds, chunk.supervised)
        return tokens.counts(len(records))

    def prove(self) -> None:
        """Do nothing: no shortcut was taken."""


def _token_row_with_error(number: int, source: DataFile, record: Record, why: str) -> TokenRow:
    """A token row with the reason why a record can't be drawn, at its place."""
    return row_without_tokens(None, why, row=number, file=str(source.path), line=record.line)
