"""Documents as an Arrow table: one row a document, or one row a pack of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as arrow
from numpy.typing import NDArray

from truetune.encoding.documents import Document
from truetune.encoding.engines import offsets_of
from truetune.encoding.token_counts import Ledger, count_tokens
from truetune.render.rendering import IGNORED

Trainer = Literal["transformers", "axolotl", "llama-factory"]


class WrittenTables(NamedTuple):
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
    label: no document goes on into the next one. Another trainer than `transformers` gets input_ids, labels and the
    attention_mask that it knows documents by. `file` is what the column of that name says of all of them; their own
    path where it is None.
    """
    order = range(len(documents)) if packs is None else [i for pack in packs for i in pack]
    chosen = [documents[i] for i in order]
    ids = _concatenate([d.ids for d in chosen], np.int32)
    supervised = _concatenate([d.supervised for d in chosen], np.bool_)
    source = _concatenate([d.source for d in chosen], np.uint8)
    borders = offsets_of([len(d.ids) for d in chosen])
    lengths = np.diff(borders)
    if packs is not None:
        supervised[borders[:-1]] = False
    rows = (
        np.arange(len(chosen) + 1) if packs is None else offsets_of([len(pack) for pack in packs])
    )
    tokens = borders[rows]
    columns = {
        "input_ids": _list_column(ids, tokens),
        "labels": _list_column(np.where(supervised, ids, np.int32(IGNORED)), tokens),
    }
    if weights:
        given = _concatenate([d.weights for d in chosen if d.weights is not None], np.float32)
        columns["loss_weights"] = _list_column(np.where(supervised, given, np.float32(0)), tokens)
    if sources:
        columns["sources"] = _list_column(source, tokens)
    if verdicts:
        columns["label"] = arrow.array([d.label for d in chosen], arrow.bool_())
    origins = {
        "file": arrow.array([file or d.origin.file for d in chosen], arrow.string()),
        "line": arrow.array([d.origin.line for d in chosen], arrow.int64()),
        "row": arrow.array([d.origin.row for d in chosen], arrow.int64()),
    }
    if packs is not None:
        origins = {
            name: arrow.ListArray.from_arrays(arrow.array(rows, arrow.int32()), v)
            for name, v in origins.items()
        }
        origins["seq_lengths"] = _list_column(lengths.astype(np.int32), rows)
    counts = count_tokens(source, supervised)
    if trainer == "transformers":
        if packs is not None:
            places = np.arange(len(ids)) - np.repeat(borders[:-1], lengths)
            columns["position_ids"] = _list_column(places.astype(np.int32), tokens)
        return WrittenTables(arrow.table(columns | origins), None, counts)
    numbers = np.ones(len(lengths), dtype=np.int64)
    if packs is not None:
        numbers = np.arange(len(lengths)) - np.repeat(rows[:-1], np.diff(rows)) + 1
    if packs is not None or trainer == "axolotl":
        columns["attention_mask"] = _list_column(
            np.repeat(numbers, lengths).astype(np.int32), tokens
        )
    return WrittenTables(arrow.table(columns), arrow.table(origins), counts)


def _concatenate(arrays: list[NDArray[Any]], kind: type) -> NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=kind)


def _list_column(values: NDArray[Any], offsets: NDArray[np.int64]) -> Any:
    return arrow.ListArray.from_arrays(arrow.array(offsets, arrow.int32()), arrow.array(values))
