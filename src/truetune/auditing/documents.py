"""Documents: where in a line one text ends and the next begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.auditing.audit import PAD
from truetune.probe.run_record import Arrays

Starts = NDArray[np.bool_]
BORDERS = ("cu_seq_lens_q", "cu_seq_lens", "cu_seqlens", "cu_seqlens_q")
NUMBERS = ("seq_idx", "sequence_ids", "document_ids", "segment_ids")


def boundaries(
    arrays: Arrays, line: int, text: NDArray[np.bool_]
) -> tuple[Starts, tuple[str, ...]]:
    """((tokens,) does a document begin here?, the keys of the batch that show more than one)."""
    first = np.zeros(len(text), np.bool_)
    first[np.flatnonzero(text)[:1]] = True
    starts, keys = first.copy(), []
    for key, array in arrays.items():
        read = READERS.get(key)
        found = read(array, line, len(text)) if read is not None else None
        if found is not None and (found := found & text & ~first).any():
            keys.append(key)
            starts |= found
    return starts, tuple(keys)


def known_boundaries(
    ids: NDArray[np.int64],
    text: NDArray[np.bool_],
    rows: list[dict[str, Any]],
    known: list[list[int] | None],
    alone: bool,
) -> Starts:
    """Where documents begin by what the collator was given: the lengths in a pack, or the rows laid end to end."""
    starts = np.zeros(len(ids), np.bool_)
    places = np.flatnonzero(text)
    if alone:
        found = rows[0].get("seq_lengths")
        lengths = [int(n) for n in found] if isinstance(found, list) else []
    else:
        lengths = [len(k) for k in known if k is not None]
        if len(lengths) != len(known) or [i for k in known if k for i in k] != ids[places].tolist():
            lengths = []
    if sum(lengths) == len(places) and lengths:
        starts[places[np.cumsum([0, *lengths[:-1]])]] = True
    return starts


def numbered(starts: Starts, text: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The number of each token's document; PAD for padding."""
    return np.where(text, np.maximum(np.cumsum(starts) - 1, 0), PAD)


def _by_positions(array: NDArray[Any], line: int, length: int) -> Starts | None:
    positions = array[0] if array.ndim == 3 else array
    if positions.ndim != 2 or positions.shape[1] != length:
        return None
    mine = positions[line if len(positions) > line else 0].astype(np.int64)
    if len(mine) > 1 and mine.min() == mine.max():
        return None
    falls = np.concatenate(([False], np.diff(mine) < 0))
    return np.asarray(falls | ((mine == 0) & np.concatenate(([False], mine[:-1] == 0))))


def _by_numbers(array: NDArray[Any], line: int, length: int) -> Starts | None:
    if array.shape[-1] != length or array.ndim != 2:
        return None
    mine = array[line if len(array) > line else 0]
    return np.asarray(np.concatenate(([False], mine[1:] != mine[:-1])))


def _by_borders(array: NDArray[Any], line: int, length: int) -> Starts | None:
    borders = array.reshape(-1)
    if line or not len(borders) or borders.max() != length:
        return None
    starts = np.zeros(length, np.bool_)
    starts[borders[borders < length].astype(np.int64)] = True
    return starts


def _by_mask(array: NDArray[Any], line: int, length: int) -> Starts | None:
    """A mask that numbers the documents, or one of four dimensions that parts them."""
    if (
        array.ndim == 2
        and array.shape[1] == length
        and array.dtype != np.bool_
        and array[line].max(initial=0) > 1
    ):
        return _by_numbers(array, line, length)
    if array.ndim == 4 and array.shape[2:] == (length, length):
        mine = attends(array[line if len(array) > line else 0, 0])
        back = np.diagonal(mine, -1)
        return np.concatenate(([False], ~back & np.diagonal(mine)[1:]))
    return None


def attends(mask: NDArray[Any]) -> NDArray[np.bool_]:
    """Where a mask lets attend: true or 1; in an additive one, 0."""
    if mask.dtype.kind == "f" and mask.max(initial=0) <= 0:
        return np.asarray(mask > -1)
    return np.asarray(mask != 0)


Reader = Callable[[NDArray[Any], int, int], "Starts | None"]
READERS: dict[str, Reader] = {
    "attention_mask": _by_mask,
    "position_ids": _by_positions,
    **dict.fromkeys(NUMBERS, _by_numbers),
    **dict.fromkeys(BORDERS, _by_borders),
}
