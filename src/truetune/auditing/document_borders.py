"""Finds where in a line one text ends and the next begins.

Packed lines part their documents by position ids that fall, numbers of sequences, cumulative lengths, or masks; each
key has its reader. What the batch does not part, the rows that the collator was given tell. The trade-off: a key that
has an unknown name is not read, and its pack counts as one document.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.auditing.audit import NO_DOCUMENT
from truetune.probe.run_record import Arrays

DocumentStarts = NDArray[np.bool_]
CUMULATIVE_LENGTH_KEYS = ("cu_seq_lens_q", "cu_seq_lens", "cu_seqlens", "cu_seqlens_q")
DOCUMENT_NUMBER_KEYS = ("seq_idx", "sequence_ids", "document_ids", "segment_ids")


def document_starts_and_keys_showing_them(
    arrays: Arrays, line: int, text: NDArray[np.bool_]
) -> tuple[DocumentStarts, tuple[str, ...]]:
    """((tokens,) does a document begin here?, the keys of the batch that show more than one)."""
    first_token = np.zeros(len(text), np.bool_)
    first_token[np.flatnonzero(text)[:1]] = True
    starts, keys = first_token.copy(), []
    for key, array in arrays.items():
        read = START_READERS.get(key)
        candidates = read(array, line, len(text)) if read is not None else None
        if candidates is None:
            continue
        # The first token begins a document in any line; padding begins none, whatever its positions are.
        candidates = candidates & text & ~first_token
        if candidates.any():
            keys.append(key)
            starts |= candidates
    return starts, tuple(keys)


def document_starts_of_rows(
    ids: NDArray[np.int64],
    text: NDArray[np.bool_],
    rows: list[dict[str, Any]],
    row_ids: list[list[int] | None],
    is_one_row: bool,
) -> DocumentStarts:
    """Where documents begin by what the collator was given: the lengths in a pack, or the rows laid end to end."""
    starts = np.zeros(len(ids), np.bool_)
    places = np.flatnonzero(text)
    lengths: list[int] = []
    if is_one_row:
        # TRL's packing leaves the lengths of the documents beside the ids of a pack.
        packed_lengths = rows[0].get("seq_lengths")
        lengths = [int(n) for n in packed_lengths] if isinstance(packed_lengths, list) else []
    else:
        whole_rows = [one for one in row_ids if one is not None]
        joined = list(chain.from_iterable(whole_rows))
        # Only rows whose ids are those of the line, one after the other, tell its borders.
        if len(whole_rows) == len(row_ids) and joined == ids[places].tolist():
            lengths = [len(one) for one in whole_rows]
    if sum(lengths) == len(places) and lengths:
        starts[places[np.cumsum([0, *lengths[:-1]])]] = True
    return starts


def number_documents(starts: DocumentStarts, text: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(tokens,) the number of each token's document, from 0; NO_DOCUMENT for padding."""
    return np.where(text, np.maximum(np.cumsum(starts) - 1, 0), NO_DOCUMENT)


# Each reader gets an array of the batch, a line, and the line's length, and returns (tokens,) starts, or None where the
# array is of another form than its key promises: that is no fault, for collators use the names as they like.
def _starts_by_positions(array: NDArray[Any], line: int, length: int) -> DocumentStarts | None:
    """Positions that fall, or are 0 twice in a row."""
    positions = array[0] if array.ndim == 3 else array
    if positions.ndim != 2 or positions.shape[1] != length:
        return None
    values = positions[line if len(positions) > line else 0].astype(np.int64)
    # Positions that are all equal are a placeholder.
    if len(values) > 1 and values.min() == values.max():
        return None
    # Two zeros in a row: the first document has a single token.
    falls = np.concatenate(([False], np.diff(values) < 0))
    return np.asarray(falls | ((values == 0) & np.concatenate(([False], values[:-1] == 0))))


def _starts_by_numbers(array: NDArray[Any], line: int, length: int) -> DocumentStarts | None:
    """Numbers of documents that change."""
    if array.shape[-1] != length or array.ndim != 2:
        return None
    values = array[line if len(array) > line else 0]
    return np.asarray(np.concatenate(([False], values[1:] != values[:-1])))


def _starts_by_cumulative_lengths(
    array: NDArray[Any], line: int, length: int
) -> DocumentStarts | None:
    """Cumulative lengths, as flash attention takes them. They count the tokens of the whole batch, so they are read
    only where that is one line."""
    borders = array.reshape(-1)
    if line or not len(borders) or borders.max() != length:
        return None
    starts = np.zeros(length, np.bool_)
    starts[borders[borders < length].astype(np.int64)] = True
    return starts


def _starts_by_mask(array: NDArray[Any], line: int, length: int) -> DocumentStarts | None:
    """A mask that numbers the documents, or one of four dimensions that parts them."""
    if (
        array.ndim == 2
        and array.shape[1] == length
        and array.dtype != np.bool_
        and array[line].max(initial=0) > 1
    ):
        return _starts_by_numbers(array, line, length)
    if array.ndim == 4 and array.shape[2:] == (length, length):
        values = mask_to_bool(array[line if len(array) > line else 0, 0])
        # A token that can't attend to the one before it begins a document.
        back = np.diagonal(values, -1)
        return np.concatenate(([False], ~back & np.diagonal(values)[1:]))
    return None


def mask_to_bool(mask: NDArray[Any]) -> NDArray[np.bool_]:
    """Where a mask lets attend: true or 1; in an additive one, 0."""
    # Additive masks hold a large negative number, which is not the same in all libraries.
    if mask.dtype.kind == "f" and mask.max(initial=0) <= 0:
        return np.asarray(mask > -1)
    return np.asarray(mask != 0)


Reader = Callable[[NDArray[Any], int, int], "DocumentStarts | None"]
START_READERS: dict[str, Reader] = {
    "attention_mask": _starts_by_mask,
    "position_ids": _starts_by_positions,
    **dict.fromkeys(DOCUMENT_NUMBER_KEYS, _starts_by_numbers),
    **dict.fromkeys(CUMULATIVE_LENGTH_KEYS, _starts_by_cumulative_lengths),
}
