"""Padding: the places of a line that hold no text. A pad is a place, not an id."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.auditing.documents import attends
from truetune.probe.run_record import Arrays


class Pads(NamedTuple):
    """What is known of the pad token."""

    id: int | None
    bos: int | None
    stops: frozenset[int]


def attended_of(arrays: Arrays, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """(lines, tokens) by the attention mask; all where there is none."""
    mask = arrays.get("attention_mask")
    if mask is not None and mask.shape == shape:
        return np.asarray(mask != 0)
    if mask is not None and mask.ndim == 4 and mask.shape[-1] == shape[1]:
        seen = attends(mask).any(axis=(1, 2))
        return np.broadcast_to(seen, shape).copy()
    return np.ones(shape, np.bool_)


def padding_of(
    ids: NDArray[np.int64], attended: NDArray[np.bool_], known: list[list[int] | None], pads: Pads
) -> NDArray[np.bool_]:
    """(lines, tokens) the places before or behind all text.

    `known` holds the ids of each line as its collator was given them, where they are at hand.
    """
    masked = not attended.all()
    ends = bool(len(ids)) and all(
        _run(line[::-1]) >= 1 and line[-1] == pads.id for line in ids if len(line)
    )
    by_id = pads.id is not None and ends and not attended[ids == pads.id].any()
    padding = np.zeros(ids.shape, np.bool_)
    for line, seen, mine, made in zip(ids, attended, known, padding, strict=True):
        low, high = _where(line, mine)
        made[:low] = made[high:] = True
        part, eyes = line[low:high], seen[low:high]
        is_known = mine is not None and (low, high) != (0, len(line))
        behind = _behind(part, eyes, pads, masked, by_id or is_known, 2 if mine is not None else 1)
        made[high - behind : high] = True
        made[low : low + _before(part[: len(part) - behind], eyes, pads, masked)] = True
    return padding


def _where(line: NDArray[np.int64], known: list[int] | None) -> tuple[int, int]:
    """The range of a line that holds the ids its collator was given; all of it where it does not."""
    count = len(known or ())
    if known is not None and 0 < count < len(line):
        given = np.asarray(known)
        if np.array_equal(line[:count], given):
            return 0, count
        if np.array_equal(line[-count:], given):
            return len(line) - count, len(line)
    return 0, len(line)


def _behind(
    ids: NDArray[np.int64],
    attended: NDArray[np.bool_],
    pads: Pads,
    masked: bool,
    by_id: bool,
    few: int,
) -> int:
    """How many places at the end are padding.

    Of a run of pads that are stop tokens the first is text, unless the text has ended already, or the mask, which is
    not made from the ids, says that it is not. Where nothing is masked at all, up to `few` stop tokens may be text.
    """
    run = _run(ids[::-1])
    if not run or (ids[-1] != pads.id and (attended[-1] or run < 2)):
        return 0
    hidden = _run(attended[::-1]) if not attended[-1] else 0
    hidden = min(hidden, run)
    first = ids[-1] in pads.stops
    if hidden == run:
        ended = any(
            id in pads.stops for id in ids[max(0, len(ids) - run - 2) : len(ids) - run].tolist()
        )
        return run - (first and by_id and not ended)
    if hidden or masked:
        return hidden
    return run if not first else run - 1 if run > few else 0


def _before(ids: NDArray[np.int64], attended: NDArray[np.bool_], pads: Pads, masked: bool) -> int:
    """How many places at the beginning are padding."""
    run = _run(ids)
    if not run or (ids[0] != pads.id and (attended[0] or run < 2)):
        return 0
    if not attended[0]:
        return min(_run(attended), run)
    if masked or (run == 1 and (ids[0] in pads.stops or ids[0] == pads.bos)):
        return 0
    return run - int(ids[0] == pads.bos)


def _run(values: NDArray[np.int64] | NDArray[np.bool_]) -> int:
    """How many values at the beginning are as the first."""
    if not len(values):
        return 0
    other = np.flatnonzero(values != values[0])
    return int(other[0]) if len(other) else len(values)
