"""Makes an Arrow table of documents: one row a document, or one row a pack of them.

Columns of lists are flat arrays with offsets, so that a table is made without a Python object for each token. Trainers
differ in what they read: transformers knows the documents of a pack by position_ids, Axolotl and LLaMA-Factory by an
attention_mask that numbers them, and neither of these may find columns that it does not know; where rows came from then
stands in a table of its own. The trade-off: three layouts in one place, against one place for each trainer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as arrow
from numpy.typing import NDArray

from truetune.encoding.make_documents_or_reject_rows import Document
from truetune.encoding.proved_tokenizer_engines import offsets_of
from truetune.encoding.token_counts import Ledger, count_tokens
from truetune.render.rendering import IGNORED

Trainer = Literal["transformers", "axolotl", "llama-factory"]


class WrittenTables(NamedTuple):
    """What becomes of documents."""

    table: Any
    """pyarrow.Table"""
    origins: Any
    """pyarrow.Table of the columns that say where each row came from, where the other one must not have them; else
    None"""
    ledger: Ledger
    """of the labels in the table"""


def make_table(
    documents: Sequence[Document],
    packs: Sequence[Sequence[int]] | None,
    *,
    weights: bool = False,
    sources: bool = False,
    verdicts: bool = False,
    trainer: Trainer = "transformers",
    file: str | None = None,
) -> WrittenTables:
    """Columns input_ids, labels, file, line, row; with packs also position_ids and seq_lengths.

    In a pack, file, line and row are lists with one entry a document, and the first token of a document is never a
    label: no document continues into the next one. Another trainer than `transformers` gets input_ids, labels and the
    attention_mask that it knows documents by.

    Args:
        documents: what is written.
        packs: numbers of the documents of each row; None for a row a document.
        weights: write a column loss_weights.
        sources: write a column sources.
        verdicts: write a column label, KTO's.
        trainer: who will read it.
        file: what the column of that name says of all of them; their own path where it is None.
    """
    ordered = _documents_in_pack_order(documents, packs)
    ids, supervised, source = _concatenated_ids_supervised_and_sources(ordered)
    layout = _lay_out([len(document.ids) for document in ordered], packs)
    if packs is not None:
        # The label of a document's first token is what the last token of the document before would have to predict.
        supervised[layout.document_offsets[:-1]] = False
    token_offsets = layout.token_offsets
    labels = np.where(supervised, ids, np.int32(IGNORED))
    columns = {
        "input_ids": _list_column(ids, token_offsets),
        "labels": _list_column(labels, token_offsets),
    }
    if weights:
        # Again with `supervised`: packing has just taken the first label of each document away.
        token_weights = np.where(supervised, _loss_weights_of_documents(ordered), np.float32(0))
        columns["loss_weights"] = _list_column(token_weights, token_offsets)
    if sources:
        columns["sources"] = _list_column(source, token_offsets)
    if verdicts:
        columns["label"] = arrow.array([document.label for document in ordered], arrow.bool_())
    origins = _origin_columns(ordered, layout, file, is_packed=packs is not None)
    counts = count_tokens(source, supervised)
    is_packed = packs is not None
    if trainer == "transformers":
        if is_packed:
            columns["position_ids"] = _list_column(
                _token_positions_in_documents(layout), token_offsets
            )
        return WrittenTables(arrow.table(columns | origins), None, counts)
    if is_packed or trainer == "axolotl":
        columns["attention_mask"] = _list_column(_document_numbers_in_rows(layout), token_offsets)
    return WrittenTables(arrow.table(columns), arrow.table(origins), counts)


class _RowLayout(NamedTuple):
    """Where rows and documents begin in the tokens, which lie end to end."""

    document_offsets: NDArray[np.int64]
    """(documents + 1,) in tokens"""
    row_offsets: NDArray[np.int64]
    """(rows + 1,) in documents"""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(documents,) in tokens"""
        return np.diff(self.document_offsets)

    @property
    def token_offsets(self) -> NDArray[np.int64]:
        """(rows + 1,) in tokens"""
        return self.document_offsets[self.row_offsets]


def _documents_in_pack_order(
    documents: Sequence[Document], packs: Sequence[Sequence[int]] | None
) -> list[Document]:
    """The documents in the order in which they are written: that of their packs, where there are any."""
    if packs is None:
        return list(documents)
    ordered: list[Document] = []
    for pack in packs:
        ordered += [documents[number] for number in pack]
    return ordered


def _concatenated_ids_supervised_and_sources(
    documents: Sequence[Document],
) -> tuple[NDArray[np.int32], NDArray[np.bool_], NDArray[np.uint8]]:
    """(tokens,) ids, (tokens,) supervised and (tokens,) source of documents, end to end."""
    return (
        _concatenate_or_empty_array([document.ids for document in documents], np.int32),
        _concatenate_or_empty_array([document.supervised for document in documents], np.bool_),
        _concatenate_or_empty_array([document.source for document in documents], np.uint8),
    )


def _loss_weights_of_documents(documents: Sequence[Document]) -> NDArray[np.float32]:
    """(tokens,) the loss weights of documents, end to end."""
    weights = [document.weights for document in documents if document.weights is not None]
    return _concatenate_or_empty_array(weights, np.float32)


def _lay_out(lengths: Sequence[int], packs: Sequence[Sequence[int]] | None) -> _RowLayout:
    """The layout of documents of some lengths in tokens, in the order of their rows."""
    if packs is None:
        return _RowLayout(offsets_of(lengths), np.arange(len(lengths) + 1))
    return _RowLayout(offsets_of(lengths), offsets_of([len(pack) for pack in packs]))


def _origin_columns(
    documents: Sequence[Document], layout: _RowLayout, file: str | None, *, is_packed: bool
) -> dict[str, Any]:
    """The columns that say where each document came from; lists of them, with their lengths, in packed rows."""
    origins = {
        "file": arrow.array([file or d.origin.file for d in documents], arrow.string()),
        "line": arrow.array([d.origin.line for d in documents], arrow.int64()),
        "row": arrow.array([d.origin.row for d in documents], arrow.int64()),
    }
    if not is_packed:
        return origins
    row_offsets = arrow.array(layout.row_offsets, arrow.int32())
    for name, values in origins.items():
        origins[name] = arrow.ListArray.from_arrays(row_offsets, values)
    origins["seq_lengths"] = _list_column(layout.lengths.astype(np.int32), layout.row_offsets)
    return origins


def _token_positions_in_documents(layout: _RowLayout) -> NDArray[np.int32]:
    """(tokens,) how many tokens of its document stand before each token: attention stops where it falls back to 0."""
    count = int(layout.document_offsets[-1])
    positions = np.arange(count) - np.repeat(layout.document_offsets[:-1], layout.lengths)
    return positions.astype(np.int32)


def _document_numbers_in_rows(layout: _RowLayout) -> NDArray[np.int32]:
    """(tokens,) the number of its document in its row, from 1 on, as 0 is for padding."""
    count = len(layout.lengths)
    documents_per_row = np.diff(layout.row_offsets)
    numbers = np.arange(count) - np.repeat(layout.row_offsets[:-1], documents_per_row) + 1
    return np.repeat(numbers, layout.lengths).astype(np.int32)


def _concatenate_or_empty_array(arrays: list[NDArray[Any]], kind: type) -> NDArray[Any]:
    """`np.concatenate`, which refuses an empty list."""
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=kind)


def _list_column(values: NDArray[Any], offsets: NDArray[np.int64]) -> Any:
    """A pyarrow.ListArray; row i holds values[offsets[i]:offsets[i + 1]]."""
    return arrow.ListArray.from_arrays(arrow.array(offsets, arrow.int32()), arrow.array(values))
