"""Reads what each line of a recorded batch holds, however its collator laid it out.

Collators write pairs one after the other, in two sets of arrays, or as prompt and answers apart; some flatten all rows
into one line. All become `BatchLine`s, with labels, positions and padding. The trade-off: a layout is recognised by the
names and shapes of its arrays, so a collator of the user's own with other names gives lines without labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.auditing.document_borders import (
    document_starts_and_keys_showing_them,
    document_starts_of_rows,
)
from truetune.auditing.find_padding import PadToken, find_padding, read_attention_mask
from truetune.probe.run_record import Arrays, Record
from truetune.render.rendering import IGNORED

LOSS_MASK_KEYS = ("completion_mask", "loss_mask")
"""Keys from which trainers make the labels, where there are none"""
PARTIAL_LINE_PREFIXES = ("prompt_", "decoder_", "concatenated_")
"""Keys of ids that hold no whole line"""
PAIRED_TRAINERS = ("dpo", "orpo", "reward")


@dataclass(frozen=True)
class BatchLine:
    """One line of a micro-batch: (tokens,) each, padding included."""

    batch: int
    line: int
    side: str
    ids: NDArray[np.int64]
    labels: NDArray[np.int64] | None
    attended: NDArray[np.bool_]
    positions: NDArray[np.int64] | None
    padding: NDArray[np.bool_]
    starts: NDArray[np.bool_]
    """Does a document begin here, as far as the batch and the rows that the collator was given tell?"""
    separated_by: tuple[str, ...]
    """Keys of the batch that show where documents begin"""
    row: int | None
    """Number of the prepared row, where the line holds just one"""


class BatchSide(NamedTuple):
    """The lines of a batch that belong together: all of them, or one side of its pairs."""

    side: str
    arrays: Arrays
    """By their plain names: input_ids, labels, ..."""
    first: int
    """Line of the batch with which it begins"""


class GivenRows(NamedTuple):
    """What the collator was given for a batch."""

    rows: list[dict[str, Any]]
    indices: list[int] | None


def list_batch_lines(record: Record, pads: PadToken) -> Iterator[BatchLine]:
    """Every line of every batch."""
    given_rows = list(_prepared_rows_of_each_batch(record))
    for number, (batch, given) in enumerate(zip(record.batches, given_rows, strict=True)):
        for side in split_sides(batch, record.facts["trainer"]["kind"], given.rows):
            yield from _list_side_lines(number, side, given, pads)


def split_sides(batch: Arrays, kind: str, rows: list[dict[str, Any]]) -> Iterator[BatchSide]:
    """The sides of a batch, each as if it were a batch of its own.

    Args:
        batch: the arrays of a recorded batch, by key.
        kind: of the trainer (sft, dpo, ...).
        rows: the prepared rows that the collator was given.
    """
    prefixes = _list_side_prefixes(batch)
    for prefix in prefixes:
        side_arrays = _arrays_with_prefix(batch, prefix, prefixes)
        if "prompt_input_ids" in batch and "labels" not in side_arrays and prefix:
            side_arrays = _join_prompt_and_answer(batch, side_arrays)
        if not prefix and _are_chosen_lines_before_rejected(side_arrays, kind, rows):
            yield from _split_into_chosen_and_rejected_half(side_arrays)
        else:
            yield BatchSide(_side_name(prefix), side_arrays, 0)


def _list_side_prefixes(batch: Arrays) -> list[str]:
    """What stands before `input_ids` in the keys of whole lines: nothing, `chosen_`, `rejected_`, ..."""
    names = [
        key for key, value in batch.items() if key.endswith("input_ids") and value.ndim in (1, 2)
    ]
    return [
        name.removesuffix("input_ids")
        for name in names
        if not name.startswith(PARTIAL_LINE_PREFIXES)
    ]


def _arrays_with_prefix(batch: Arrays, prefix: str, prefixes: list[str]) -> Arrays:
    """The arrays of one side by their plain names; without a prefix, those that belong to no other side."""
    others = tuple(other for other in prefixes if other)
    return {
        key.removeprefix(prefix): value
        for key, value in batch.items()
        if key.startswith(prefix) and (prefix or not key.startswith(others))
    }


def _split_into_chosen_and_rejected_half(arrays: Arrays) -> Iterator[BatchSide]:
    """The chosen lines and the rejected ones of a batch that holds them one after the other."""
    half = len(arrays["input_ids"]) // 2
    for side, part in (("chosen", slice(None, half)), ("rejected", slice(half, None))):
        # Arrays of another length (a scalar, log-probabilities of the reference) belong to no line.
        of_lines = {k: v[part] for k, v in arrays.items() if v.ndim and len(v) == 2 * half}
        yield BatchSide(side, of_lines, part.start or 0)


def _side_name(prefix: str) -> str:
    """`kl`, `chosen` or `rejected`, as the prefix begins; empty for all others."""
    name = prefix.lower().rstrip("_")
    return next((side for side in ("kl", "chosen", "rejected") if name.startswith(side)), "")


def _are_chosen_lines_before_rejected(
    arrays: Arrays, kind: str, rows: list[dict[str, Any]]
) -> bool:
    """Are these the chosen lines, and then the rejected ones?"""
    # The rows tell it surely; without them the trainer's kind must do.
    count = len(arrays["input_ids"]) if arrays["input_ids"].ndim > 1 else 1
    if rows and any(rows):
        return count == 2 * len(rows) and any(key.startswith("rejected") for key in rows[0])
    return kind in PAIRED_TRAINERS and count % 2 == 0


def _join_prompt_and_answer(batch: Arrays, answer: Arrays) -> Arrays:
    """Older preference trainers join prompt and answer in the forward pass, and learn the answer."""
    # Prompts are padded on their left and answers on their right, so that joined lines have no hole.
    prompt, ids = batch["prompt_input_ids"], answer["input_ids"]
    seen = batch.get("prompt_attention_mask", np.ones_like(prompt))
    mask = answer.get("attention_mask", np.ones_like(ids))
    return {
        "input_ids": np.concatenate((prompt, ids), axis=1),
        "attention_mask": np.concatenate((seen, mask), axis=1),
        "completion_mask": np.concatenate((np.zeros_like(seen), mask), axis=1),
    }


def _list_side_lines(
    number: int, side: BatchSide, given_rows: GivenRows, pads: PadToken
) -> Iterator[BatchLine]:
    """The lines of one side of a batch, with labels, positions, padding and documents; `number` is the batch's."""
    # A padding-free batch has no dimension of lines.
    size = side.arrays["input_ids"].shape
    flat = len(size) == 1
    arrays = {
        key: value[None] if flat and value.shape == size else value
        for key, value in side.arrays.items()
    }
    mask = arrays.get("attention_mask")
    if mask is not None and mask.shape == (1, *arrays["input_ids"].shape[1:]):
        # One line of a mask is that of all lines: so torch takes it.
        arrays["attention_mask"] = np.broadcast_to(mask, arrays["input_ids"].shape)
    ids = arrays["input_ids"].astype(np.int64)
    row_ids = [_read_row_ids(row, side.side) for row in given_rows.rows]
    is_one_row_a_line = len(row_ids) == len(ids)
    attended = read_attention_mask(arrays, ids.shape)
    padding = find_padding(ids, attended, row_ids if is_one_row_a_line else [None] * len(ids), pads)
    for i in range(len(ids)):
        text = ~padding[i]
        starts, keys = document_starts_and_keys_showing_them(arrays, i, text)
        starts |= document_starts_of_rows(
            ids[i],
            text,
            given_rows.rows[i : i + 1] if is_one_row_a_line else given_rows.rows,
            row_ids,
            is_one_row_a_line,
        )
        yield BatchLine(
            batch=number,
            line=side.first + i,
            side=side.side,
            ids=ids[i],
            labels=read_labels(arrays, i),
            attended=attended[i],
            positions=_read_positions(arrays, i),
            padding=padding[i],
            starts=starts,
            separated_by=keys,
            row=given_rows.indices[i] if is_one_row_a_line and given_rows.indices else None,
        )


def read_labels(arrays: Arrays, line: int) -> NDArray[np.int64] | None:
    """The labels of a line; by its loss mask where the trainer makes them from that."""
    ids = arrays["input_ids"]
    if "labels" in arrays:
        labels = arrays["labels"]
        return labels[line].astype(np.int64) if labels.shape == ids.shape else None
    # TRL's collators give a mask, and the trainer makes the labels in its loss.
    for name in LOSS_MASK_KEYS:
        if name in arrays and arrays[name].shape == ids.shape:
            return np.where(arrays[name][line] != 0, ids[line], IGNORED).astype(np.int64)
    return None


def _read_positions(arrays: Arrays, line: int) -> NDArray[np.int64] | None:
    """(tokens,) positions of a line; None where the batch has none of its length."""
    positions = arrays.get("position_ids")
    if positions is None:
        return None
    # Models with pictures have three rows of positions (time, height, width); text counts in the first.
    positions = positions[0] if positions.ndim == 3 else positions
    if positions.shape[-1] != arrays["input_ids"].shape[-1]:
        return None
    return np.asarray(positions[line if len(positions) > line else 0].astype(np.int64))


def _prepared_rows_of_each_batch(record: Record) -> Iterator[GivenRows]:
    """The prepared rows of each batch; none where it is not known which are whose."""
    indices = [batch["indices"] for batch in record.facts["batches"]]
    sizes = [len(row_numbers) for row_numbers in indices if row_numbers is not None]
    # A loader that does not tell its indices took as many rows for each batch, or it can't be said which were whose.
    if len(sizes) < len(indices):
        each = len(record.prepared) // max(1, len(indices))
        sizes = [each] * len(indices)
    if sum(sizes) != len(record.prepared):
        yield from (GivenRows([], None) for _ in indices)
        return
    end = 0
    for size, row_numbers in zip(sizes, indices, strict=True):
        yield GivenRows(record.prepared[end : end + size], row_numbers)
        end += size


def _read_row_ids(row: dict[str, Any], side: str) -> list[int] | None:
    """The ids of a prepared row on one side, as collators join them; None where it holds none."""
    # KTO joins prompts with answers of other rows: no row holds these ids.
    if side == "kl":
        return None
    if side and f"{side}_input_ids" in row and "prompt_input_ids" not in row:
        return _as_list_of_whole_numbers(row[f"{side}_input_ids"])
    answer = {"chosen": "chosen_ids", "rejected": "rejected_ids"}.get(side, "completion_ids")
    if "prompt_ids" in row and answer in row:
        return [
            *(_as_list_of_whole_numbers(row["prompt_ids"]) or []),
            *(_as_list_of_whole_numbers(row[answer]) or []),
        ]
    return None if side else _as_list_of_whole_numbers(row.get("input_ids"))


def _as_list_of_whole_numbers(value: Any) -> list[int] | None:
    """A list of whole numbers; None for anything else."""
    return value if isinstance(value, list) and all(isinstance(id, int) for id in value) else None
