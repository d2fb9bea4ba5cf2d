"""Finds the places of a line that hold no text: a pad is a place, not an id.

Many tokenizers pad with a stop token, so an id tells nothing by itself. What the collator was given, the attention
mask, and runs at the ends of lines are asked in this order. The trade-off: where none of them tells, one stop token at
the end is taken for the text's own, so that no stop token that is learned is ever called padding.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.auditing.document_borders import mask_to_bool
from truetune.probe.run_record import Arrays


class PadToken(NamedTuple):
    """What is known of the pad token."""

    id: int | None
    bos: int | None
    stops: frozenset[int]


def read_attention_mask(arrays: Arrays, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """(lines, tokens) by the attention mask; all where there is none."""
    mask = arrays.get("attention_mask")
    # Not 1: packing writes the number of the document.
    if mask is not None and mask.shape == shape:
        return np.asarray(mask != 0)
    if mask is not None and mask.ndim == 4 and mask.shape[-1] == shape[1]:
        line_attended = mask_to_bool(mask).any(axis=(1, 2))
        return np.broadcast_to(line_attended, shape).copy()
    return np.ones(shape, np.bool_)


def find_padding(
    ids: NDArray[np.int64],
    attended: NDArray[np.bool_],
    known: list[list[int] | None],
    pads: PadToken,
) -> NDArray[np.bool_]:
    """(lines, tokens) the places before or behind all text.

    Args:
        ids: (lines, tokens).
        attended: (lines, tokens) by the attention mask.
        known: the ids of each line as its collator was given them; None where that is not known.
        pads: what is known of the pad token.
    """
    masked = not attended.all()
    # A mask that hides every pad id, in a batch in which each line ends in one, was made from the ids (`ids != pad`).
    # Then it hides stop tokens too, and says nothing of where the text ends.
    ends = bool(len(ids)) and all(
        _length_of_first_run(line[::-1]) >= 1 and line[-1] == pads.id for line in ids if len(line)
    )
    by_id = pads.id is not None and ends and not attended[ids == pads.id].any()
    padding = np.zeros(ids.shape, np.bool_)
    for line, line_attended, row_ids, is_pad in zip(ids, attended, known, padding, strict=True):
        low, high = _find_range_of_given_ids(line, row_ids)
        is_pad[:low] = is_pad[high:] = True
        part, part_attended = line[low:high], line_attended[low:high]
        is_known = row_ids is not None and (low, high) != (0, len(line))
        behind = _count_pads_at_end(
            part, part_attended, pads, masked, by_id or is_known, 2 if row_ids is not None else 1
        )
        is_pad[high - behind : high] = True
        before = _count_pads_at_start(part[: len(part) - behind], part_attended, pads, masked)
        is_pad[low : low + before] = True
    return padding


def _find_range_of_given_ids(line: NDArray[np.int64], known: list[int] | None) -> tuple[int, int]:
    """The range of a line that holds the ids its collator was given; all of it where it does not."""
    # Equal ids at one end prove where the padding is, whatever the pad token.
    count = len(known or ())
    if known is not None and 0 < count < len(line):
        row_array = np.asarray(known)
        if np.array_equal(line[:count], row_array):
            return 0, count
        if np.array_equal(line[-count:], row_array):
            return len(line) - count, len(line)
    return 0, len(line)


def _count_pads_at_end(
    ids: NDArray[np.int64],
    attended: NDArray[np.bool_],
    pads: PadToken,
    masked: bool,
    by_id: bool,
    few: int,
) -> int:
    """How many places at the end are padding.

    Of a run of pads that are stop tokens the first is text, unless the text has ended already, or the mask, which is
    not made from the ids, says that it is not. Where nothing is masked at all, up to `few` stop tokens may be text.
    """
    run = _length_of_first_run(ids[::-1])
    if not _may_run_be_padding(ids[::-1], attended[::-1], pads, run):
        return 0
    hidden = min(_length_of_first_run(attended[::-1]), run) if not attended[-1] else 0
    is_stop = ids[-1] in pads.stops
    if hidden == run:
        # A line break may stand between the stop token and the padding, so two tokens are looked at.
        last = ids[max(0, len(ids) - run - 2) : len(ids) - run]
        has_ended = any(id in pads.stops for id in last.tolist())
        return run - (is_stop and by_id and not has_ended)
    if hidden or masked:
        return hidden
    if not is_stop:
        return run
    return run - 1 if run > few else 0


def _may_run_be_padding(
    ids: NDArray[np.int64], attended: NDArray[np.bool_], pads: PadToken, run: int
) -> bool:
    """Is a run at one end of pad tokens, or of another token that is hidden and repeated?"""
    return bool(run) and bool(ids[0] == pads.id or (not attended[0] and run >= 2))


def _count_pads_at_start(
    ids: NDArray[np.int64], attended: NDArray[np.bool_], pads: PadToken, masked: bool
) -> int:
    """How many places at the beginning are padding."""
    run = _length_of_first_run(ids)
    if not _may_run_be_padding(ids, attended, pads, run):
        return 0
    if not attended[0]:
        return min(_length_of_first_run(attended), run)
    if masked or (run == 1 and (ids[0] in pads.stops or ids[0] == pads.bos)):
        return 0
    return run - int(ids[0] == pads.bos)


def _length_of_first_run(values: NDArray[np.int64] | NDArray[np.bool_]) -> int:
    """How many values at the beginning are as the first."""
    if not len(values):
        return 0
    other = np.flatnonzero(values != values[0])
    return int(other[0]) if len(other) else len(values)
