"""Token rows of a folder that `truetune encode` wrote, from its documents, positions, labels and
origins.

They hold ids, so that a tokenizer is needed to spell them, and it should be the one that made them: another one
spells other text, which looks right for a while. A difference of its files is said above the page, and the page is
drawn, since an edited chat template changes no id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.data.find_data_files import DataFile
from truetune.data.guard_output_folder import file_digest
from truetune.data.read_file_records import Record
from truetune.encoding.encoded_folder_layout import DATA, MANIFEST, ORIGIN, read_manifest_or_none
from truetune.encoding.token_bytes import TokenBytes
from truetune.errors import DataError, SpecError
from truetune.render.find_tokenizer_folder import tokenizer_and_model_files
from truetune.render.rendering import IGNORED
from truetune.render.rendering import Source as Kind
from truetune.render.tokenizer import Tokenizer, load_tokenizer
from truetune.report.page.json_of_one_examples_tokens import (
    TokenRow,
    labels_entry_where_unlike_ids,
    mask_bits,
    row_without_tokens,
    source_letters,
    spell_tokens_without_source_text,
)
from truetune.settings.run_spec import RunSpec
from truetune.viewing.row_index import SourcedRecords
from truetune.viewing.token_counts_of_rows import RowCounts, TokensOfRows

TOKEN_COLUMNS = ("input_ids", "labels")


def shard_sources(folder: Path, manifest: Mapping[str, Any]) -> list[DataFile]:
    """The files of the shards, in order."""
    return [
        DataFile(
            folder / DATA / shard["file"],
            "arrow" if shard["file"].endswith(".arrow") else "parquet",
        )
        for shard in manifest["shards"]
    ]


class EncodedRows:
    """Makes the token rows of encoded rows; not for several threads at once."""

    def __init__(self, folder: Path, spec: RunSpec) -> None:
        """Raises SpecError, DataError or TokenizerError."""
        if spec.tokenizer is None:
            raise SpecError(f"{folder}: encoded data holds ids alone; name its tokenizer with -t")
        manifest = read_manifest_or_none(folder)
        if manifest is None:
            raise DataError(
                f"{folder / MANIFEST}: not as this version of truetune encode writes it; encode"
                " again"
            )
        self.folder, self.manifest = folder, manifest
        self.tokenizer = load_tokenizer(spec.tokenizer, model=spec.model)
        self.notice = warning_of_other_tokenizer_files(self.tokenizer, manifest)
        self.vocabulary = TokenBytes(self.tokenizer.backend)
        self._control = np.array(sorted(self.tokenizer.control), np.int64)
        # Two shards: the page asks for neighbours, which may lie on both sides of a border.
        self._origins = lru_cache(maxsize=2)(self._read_origins)

    def rows(self, first: int, records: SourcedRecords) -> Iterator[list[TokenRow]]:
        """For each record its token row; `first` is the number of the first of them."""
        for number, (source, record) in enumerate(records, first):
            try:
                yield [self._token_row(number, source, record)]
            # A folder that was edited by hand shows which row is damaged; the rows around it
            # are drawn.
            except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
                why = f"{source.path}: not as truetune encode writes it: {error!r}"
                place = {"row": number, "file": str(source.path), "line": record.line}
                yield [row_without_tokens(None, str(record.error or why), **place)]

    def token_counter(self, only_reference: bool) -> EncodedTokenCounter:
        """What counts the tokens of records; it takes no shortcuts."""
        return EncodedTokenCounter(self)

    def faulty(self, first: int, records: SourcedRecords) -> int | None:
        """The first record that can't be read, or teaches nothing; None where all are fine."""
        for number, rows in enumerate(self.rows(first, records), first):
            if any(row.get("error") or "1" not in row["supervised"] for row in rows):
                return number
        return None

    def searched_text(self, record: Record) -> str:
        """The text that a search looks at: what the ids spell."""
        ids = np.asarray((record.row or {}).get("input_ids") or (), np.int64)
        # An id beyond the vocabulary has no text; without this the whole row could not be
        # searched.
        ids = ids[(ids >= 0) & (ids < len(self.vocabulary.lengths))]
        return self.vocabulary.bytes(ids.astype(np.int32)).tobytes().decode("utf-8", "replace")

    def forget(self) -> None:
        """Drop what is cached of the files, since they were changed."""
        self._origins.cache_clear()

    def _token_row(self, number: int, source: DataFile, record: Record) -> TokenRow:
        """The token row of one record."""
        if record.error is not None:
            raise DataError(str(record.error))
        columns = record.row
        ids, labels = (np.array(columns[name], np.int64) for name in TOKEN_COLUMNS)
        # Packed rows keep the places of their documents in a file beside the shard, for they
        # are no columns that a trainer reads.
        origins = columns if "file" in columns else self._origins(source.path.name)[record.line - 1]
        lengths = origins.get("seq_lengths") or columns.get("seq_lengths") or [len(ids)]
        documents = np.repeat(np.arange(len(lengths)), lengths)
        # Said here, because numpy would stretch or cut one of them to fit.
        if not len(ids) == len(labels) == len(documents):
            raise ValueError("input_ids, labels and seq_lengths do not fit together")
        files, lines, rows = (
            np.atleast_1d(np.array(origins[key], object)).tolist()
            for key in ("file", "line", "row")
        )
        row: TokenRow = {
            "row": number,
            "file": str(source.path),
            "line": record.line,
            "turn": None,
            "format": "encoded",
            "title": None,
            "ids": ids.tolist(),
            "pieces": spell_tokens_without_source_text(ids, self.vocabulary),
            "source": source_letters(self.sources_of_tokens(columns, ids)),
            "supervised": mask_bits(labels != IGNORED),
            "runs": [[0, "", -1, -1, None]],
            "documents": documents.tolist(),
            "origins": [list(origin) for origin in zip(files, lines, rows, strict=True)],
            **labels_entry_where_unlike_ids(ids, labels),
        }
        for name, column in (("positions", "position_ids"), ("weights", "loss_weights")):
            if columns.get(column) is not None:
                row[name] = list(columns[column])
        return row

    def sources_of_tokens(
        self, columns: Mapping[str, Any], ids: NDArray[np.int64]
    ) -> NDArray[np.uint8]:
        """(tokens,) the sources of a record's tokens: its column, or what the ids alone tell."""
        kinds = columns.get("sources")
        return (
            self._sources_told_from_ids_alone(ids) if kinds is None else np.array(kinds, np.uint8)
        )

    def _sources_told_from_ids_alone(self, ids: NDArray[np.int64]) -> NDArray[np.uint8]:
        """(tokens,) sources where the column `sources` is missing: control tokens are the
        template's, the rest is not known.
        """
        # A control token in text is written by a template; which words are whose can't be known
        # from ids alone.
        return np.where(np.isin(ids, self._control), np.uint8(Kind.TEMPLATE), np.uint8(Kind.OTHER))

    def _read_origins(self, shard: str) -> list[dict[str, Any]]:
        """Where each row of a shard came from, whose own columns do not say it."""
        from truetune.parsing.read_parquet_and_arrow_within_limits import read_parquet_table

        number = next(
            entry["number"] for entry in self.manifest["shards"] if entry["file"] == shard
        )
        table = read_parquet_table(self.folder / ORIGIN / f"{number:05d}.parquet")
        origins: list[dict[str, Any]] = table.to_pylist()
        return origins


class EncodedTokenCounter:
    """Counts the tokens of encoded rows."""

    def __init__(self, rows: EncodedRows) -> None:
        self._rows = rows

    def count(self, first: int, records: SourcedRecords) -> RowCounts:
        """The figures of records; a damaged one has no tokens."""
        tokens = TokensOfRows()
        for place, (_, record) in enumerate(records):
            columns = record.row or {}
            try:
                ids, labels = (np.array(columns[name], np.int64) for name in TOKEN_COLUMNS)
                sources = self._rows.sources_of_tokens(columns, ids)
            # A folder that was edited by hand: the page shows why, see EncodedRows.rows.
            except (KeyError, TypeError, ValueError, OverflowError):
                continue
            if len(ids) == len(labels) == len(sources):
                tokens.add(place, sources, labels != IGNORED)
        return tokens.counts(len(records))

    def prove(self) -> None:
        """Do nothing: no shortcut was taken."""


def warning_of_other_tokenizer_files(
    tokenizer: Tokenizer, manifest: Mapping[str, Any]
) -> str | None:
    """A warning where the files of a tokenizer are not those that the data was encoded with."""
    digests_then: Mapping[str, str] = manifest.get("inputs", {}).get("tokenizer", {})
    digests_now = {
        path.name: file_digest(path)
        for path in tokenizer_and_model_files(tokenizer.folder, tokenizer.weights)
    }
    differ = sorted(
        name
        for name in digests_then.keys() | digests_now.keys()
        if digests_then.get(name) != digests_now.get(name)
    )
    if not digests_then or not differ:
        return None
    return (
        f"{tokenizer.folder} is not the tokenizer that this data was encoded with:"
        f" {', '.join(differ)} differ"
    )
