"""Token rows of data as `truetune show` shows them, a few at a time, from anywhere in the files.

A row is read and rendered when it is asked for, by the same functions as in a check. What a check learns from the
first rows of a file, its format, is found once for each file and kept. The trade-off: a format that first shows
beyond the first thousand rows is not seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby, islice
from typing import Any

import numpy as np

from truetune.data.conversation import Conversation, Origin
from truetune.data.find_data_files import DataFile, open_raw
from truetune.data.read_file_records import Record, read_records
from truetune.data.read_rows_as_conversations import (
    conversations_of_records,
    find_record_that_decides_format,
)
from truetune.errors import DataError
from truetune.report.page.json_of_one_examples_tokens import TokenRow, row_without_tokens
from truetune.report.page.render_rows_beside_ideal import TokenRowRenderer
from truetune.settings.run_spec import RunSpec
from truetune.viewing.count_conversation_tokens import ConversationTokenCounter
from truetune.viewing.row_index import SourcedRecords

# Chosen, not measured: a file that begins with a thousand broken rows has other problems than
# its format. Twice as many would double the wait for the first row of each broken file.
FORMAT_ROWS = 1000
"""Rows of a file among which one must decide its format"""


class ConversationRows:
    """Makes the token rows of records, rendered and encoded under the settings of a run; not for
    several threads at once.
    """

    def __init__(self, spec: RunSpec) -> None:
        """Raises SpecError, TokenizerError or TemplateError."""
        self.spec = spec
        self.rendered = TokenRowRenderer(spec)
        self._like: dict[str, Record | DataError] = {}

    def rows(self, first: int, records: SourcedRecords) -> Iterator[list[TokenRow]]:
        """For each record its token rows; `first` is the number of the first of them."""
        for row, conversation in self._origin_and_conversation_of_records(first, records):
            if isinstance(conversation, Conversation):
                yield self._render_row(conversation)
            else:
                yield [row_without_tokens(row, str(conversation))]

    def _render_row(self, row: Conversation) -> list[TokenRow]:
        """The token rows of one conversation."""
        try:
            return self.rendered.token_rows(row)
        # The page shows other rows as well, and a defect of ours in one of them must not take
        # them away.
        except Exception as error:
            return [
                row_without_tokens(
                    row.origin,
                    f"this row can't be drawn: {error!r}; please report it",
                    format=row.format,
                )
            ]

    def token_counter(self, only_reference: bool) -> ConversationTokenCounter:
        """What counts the tokens of records under the same settings, with an engine of its own.

        Raises SpecError, TokenizerError or TemplateError.
        """
        return ConversationTokenCounter(
            self.spec, self._conversations, only_reference=only_reference
        )

    def _conversations(self, first: int, records: SourcedRecords) -> Iterator[Conversation]:
        """The records that are conversations; `first` is the number of the first record."""
        for _, row in self._origin_and_conversation_of_records(first, records):
            if isinstance(row, Conversation):
                yield row

    def faulty(self, first: int, records: SourcedRecords) -> int | None:
        """The first record that can't be read or rendered, has a problem, or teaches nothing; None
        where all are fine.
        """
        conversations = list(self._origin_and_conversation_of_records(first, records))
        batch = self.rendered.make_batch(
            [row for _, row in conversations if isinstance(row, Conversation) and not row.problems]
        )
        # The place of each token in its own example: what max_length cuts is not learned.
        at = np.arange(len(batch.ids)) - np.repeat(batch.offsets[:-1], batch.lengths)
        learned = batch.count_true_per_example(
            batch.supervised & (at < (self.spec.max_length or np.inf))
        ).tolist()
        fine = {e.row.origin.row for e, count in zip(batch.examples, learned, strict=True) if count}
        return next((origin.row for origin, _ in conversations if origin.row not in fine), None)

    def searched_text(self, record: Record) -> str:
        """The text that a search looks at, where a record is not on a line of its own."""
        return json.dumps(record.row, ensure_ascii=False, default=str)

    def forget(self) -> None:
        """Drop what is cached of the files, since they were changed."""
        self._like.clear()

    def _origin_and_conversation_of_records(
        self, first: int, sourced_records: SourcedRecords
    ) -> Iterator[tuple[Origin, Conversation | DataError]]:
        """(origin, conversation) of each record in order; a DataError in its place says why there
        is no row.
        """
        number = first
        # One call may reach over the end of a file, and the next file may have another format.
        for source, group in groupby(sourced_records, lambda one: one[0]):
            part = [record for _, record in group]
            like = self._record_that_decides_format(source)
            origins = [
                Origin(str(source.path), record.line, row)
                for row, record in enumerate(part, number)
            ]
            by_row: dict[int, Conversation | DataError] = {}

            # The reader calls this for a line that holds no row; the binding keeps each file's
            # own answers.
            def broken(origin: Origin, why: str, by_row: dict[int, Any] = by_row) -> None:
                by_row[origin.row] = DataError(why)

            if isinstance(like, Record):
                form: dict[str, Any] = {
                    "format": self.spec.format,
                    "columns": self.spec.map,
                    "on_broken": broken,
                }
                by_row |= {
                    row.origin.row: row
                    for row in conversations_of_records(part, source, number, like=like, **form)
                }
            for origin, record in zip(origins, part, strict=True):
                # Whatever the reader passes over without a word still has a row of its own
                # here: numbers of rows must not shift.
                missing = like if isinstance(like, DataError) else DataError(f"{origin}: no row")
                yield origin, by_row.get(origin.row, record.error or missing)
            number += len(part)

    def _record_that_decides_format(self, source: DataFile) -> Record | DataError:
        """The record that decides the format of a file, or why there is none."""
        name = str(source.path)
        if name not in self._like:
            try:
                with open_raw(source.path) as raw:
                    head = islice(read_records(source, raw), FORMAT_ROWS)
                    first_row = find_record_that_decides_format(
                        head, source, self.spec.format, self.spec.map, skips=True
                    )
                    # No row decides the format: the first one is read strictly, so that its
                    # error is the reason that is shown.
                    if first_row is None:
                        raw.seek(0)
                        find_record_that_decides_format(
                            islice(read_records(source, raw), 1),
                            source,
                            self.spec.format,
                            self.spec.map,
                            skips=False,
                        )
                self._like[name] = first_row or DataError(
                    f"{name}: none of its first {FORMAT_ROWS:,} rows is a row"
                )
            except DataError as error:
                self._like[name] = error
        return self._like[name]
