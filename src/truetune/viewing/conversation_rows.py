"""Rows of data as `truetune show` shows them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from typing import Any

import numpy as np

from truetune.data.conversation import Conversation, Origin
from truetune.data.files import Source, open_raw
from truetune.data.records import Record, records
from truetune.data.rows import conversations, exemplar
from truetune.errors import DataError
from truetune.report.page.render_rows import RowRenderer
from truetune.report.page.token_rows import TokenRow, row_without_tokens
from truetune.spec.run import RunSpec

FORMAT_ROWS = 1000
"""Rows of a file among which one must decide its format"""
SourcedRecords = Sequence[tuple[Source, Record]]


class ConversationRows:
    """Token rows of records, rendered and encoded under the settings of a run; not for several threads at once."""

    def __init__(self, spec: RunSpec) -> None:
        """Raises SpecError, TokenizerError or TemplateError."""
        self.spec = spec
        self.rendered = RowRenderer(spec)
        self._like: dict[str, Record | DataError] = {}

    def rows(self, first: int, records: SourcedRecords) -> Iterator[list[TokenRow]]:
        """Of each record its rows; `first` is the number of the first of them."""
        for row, conversation in self._conversations(first, records):
            if isinstance(conversation, Conversation):
                yield self._drawn(conversation)
            else:
                yield [row_without_tokens(row, str(conversation))]

    def _drawn(self, row: Conversation) -> list[TokenRow]:
        try:
            return self.rendered.rows(row)
        except Exception as error:
            return [
                row_without_tokens(
                    row.origin,
                    f"this row can't be drawn: {error!r}; please report it",
                    format=row.format,
                )
            ]

    def faulty(self, first: int, records: SourcedRecords) -> int | None:
        """The first that can't be read or rendered, has a problem, or teaches nothing."""
        conversations = list(self._conversations(first, records))
        batch = self.rendered.batch(
            [row for _, row in conversations if isinstance(row, Conversation) and not row.problems]
        )
        at = np.arange(len(batch.ids)) - np.repeat(batch.offsets[:-1], batch.lengths)
        learned = batch.per_example(
            batch.supervised & (at < (self.spec.max_length or np.inf))
        ).tolist()
        fine = {e.row.origin.row for e, count in zip(batch.examples, learned, strict=True) if count}
        return next((origin.row for origin, _ in conversations if origin.row not in fine), None)

    def text(self, record: Record) -> str:
        """What is searched, where a record does not stand on a line."""
        return json.dumps(record.row, ensure_ascii=False, default=str)

    def forget(self) -> None:
        """The files were changed."""
        self._like.clear()

    def _conversations(
        self, first: int, sourced_records: SourcedRecords
    ) -> Iterator[tuple[Origin, Conversation | DataError]]:
        """In order; a DataError is why there is no row."""
        number = first
        for source, group in groupby(sourced_records, lambda one: one[0]):
            part = [record for _, record in group]
            like = self._exemplar(source)
            origins = [
                Origin(str(source.path), record.line, row)
                for row, record in enumerate(part, number)
            ]
            by_row: dict[int, Conversation | DataError] = {}

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
                    for row in conversations(part, source, number, like=like, **form)
                }
            for origin, record in zip(origins, part, strict=True):
                missing = like if isinstance(like, DataError) else DataError(f"{origin}: no row")
                yield origin, by_row.get(origin.row, record.error or missing)
            number += len(part)

    def _exemplar(self, source: Source) -> Record | DataError:
        """The record that decides the format of a file, or why there is none."""
        name = str(source.path)
        if name not in self._like:
            try:
                with open_raw(source.path) as raw:
                    head = islice(records(source, raw), FORMAT_ROWS)
                    first_row = exemplar(head, source, self.spec.format, self.spec.map, skips=True)
                    if first_row is None:
                        raw.seek(0)
                        exemplar(
                            islice(records(source, raw), 1),
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
