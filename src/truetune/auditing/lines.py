"""Lines: what each line of a recorded batch holds, however its collator laid it out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.auditing.documents import boundaries, known_boundaries
from truetune.auditing.padding import Pads, attended_of, padding_of
from truetune.probe.run_record import Arrays, Record
from truetune.render.rendering import IGNORED

MASKS = ("completion_mask", "loss_mask")
"""Keys from which trainers make the labels, where there are none"""
NO_LINES = ("prompt_", "decoder_", "concatenated_")
"""Keys of ids that hold no whole line"""
PAIRED = ("dpo", "orpo", "reward")


@dataclass(frozen=True)
class Line:
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


class Stream(NamedTuple):
    """The lines of a batch that belong together: all of them, or one side of its pairs."""

    side: str
    arrays: Arrays
    """By their plain names: input_ids, labels, ..."""
    first: int
    """Line of the batch with which it begins"""


class Given(NamedTuple):
    """What the collator was given for a batch."""

    rows: list[dict[str, Any]]
    indices: list[int] | None


def lines(record: Record, pads: Pads) -> Iterator[Line]:
    """Every line of every batch."""
    given = list(_given(record))
    for number, (batch, of) in enumerate(zip(record.batches, given, strict=True)):
        for stream in streams(batch, record.facts["trainer"]["kind"], of.rows):
            yield from _lines(number, stream, of, pads)


def streams(batch: Arrays, kind: str, rows: list[dict[str, Any]]) -> Iterator[Stream]:
    """The sides of a batch, each as if it were a batch of its own."""
    names = [
        key for key, value in batch.items() if key.endswith("input_ids") and value.ndim in (1, 2)
    ]
    prefixes = [name.removesuffix("input_ids") for name in names if not name.startswith(NO_LINES)]
    others = tuple(prefix for prefix in prefixes if prefix)
    for prefix in prefixes:
        mine = {
            key.removeprefix(prefix): value
            for key, value in batch.items()
            if key.startswith(prefix) and (prefix or not key.startswith(others))
        }
        if "prompt_input_ids" in batch and "labels" not in mine and prefix:
            mine = _behind_prompt(batch, mine)
        if not prefix and _is_paired(mine, kind, rows):
            half = len(mine["input_ids"]) // 2
            for side, part in (("chosen", slice(None, half)), ("rejected", slice(half, None))):
                cut = {k: v[part] for k, v in mine.items() if v.ndim and len(v) == 2 * half}
                yield Stream(side, cut, part.start or 0)
        else:
            yield Stream(_side(prefix), mine, 0)


def _side(prefix: str) -> str:
    name = prefix.lower().rstrip("_")
    return next((side for side in ("kl", "chosen", "rejected") if name.startswith(side)), "")


def _is_paired(arrays: Arrays, kind: str, rows: list[dict[str, Any]]) -> bool:
    """Are these the chosen lines, and then the rejected ones?"""
    count = len(arrays["input_ids"]) if arrays["input_ids"].ndim > 1 else 1
    if rows and any(rows):
        return count == 2 * len(rows) and any(key.startswith("rejected") for key in rows[0])
    return kind in PAIRED and count % 2 == 0


def _behind_prompt(batch: Arrays, answer: Arrays) -> Arrays:
    """Older preference trainers join prompt and answer in the forward pass, and learn the answer."""
    prompt, ids = batch["prompt_input_ids"], answer["input_ids"]
    seen = batch.get("prompt_attention_mask", np.ones_like(prompt))
    mask = answer.get("attention_mask", np.ones_like(ids))
    return {
        "input_ids": np.concatenate((prompt, ids), axis=1),
        "attention_mask": np.concatenate((seen, mask), axis=1),
        "completion_mask": np.concatenate((np.zeros_like(seen), mask), axis=1),
    }


def _lines(number: int, stream: Stream, given: Given, pads: Pads) -> Iterator[Line]:
    size = stream.arrays["input_ids"].shape
    flat = len(size) == 1
    arrays = {
        key: value[None] if flat and value.shape == size else value
        for key, value in stream.arrays.items()
    }
    ids = arrays["input_ids"].astype(np.int64)
    known = [_ids_of(row, stream.side) for row in given.rows]
    alone = len(known) == len(ids)
    attended = attended_of(arrays, ids.shape)
    padding = padding_of(ids, attended, known if alone else [None] * len(ids), pads)
    for i in range(len(ids)):
        text = ~padding[i]
        starts, keys = boundaries(arrays, i, text)
        starts |= known_boundaries(
            ids[i], text, given.rows[i : i + 1] if alone else given.rows, known, alone
        )
        yield Line(
            batch=number,
            line=stream.first + i,
            side=stream.side,
            ids=ids[i],
            labels=labels_of(arrays, i),
            attended=attended[i],
            positions=_positions(arrays, i),
            padding=padding[i],
            starts=starts,
            separated_by=keys,
            row=given.indices[i] if alone and given.indices else None,
        )


def labels_of(arrays: Arrays, line: int) -> NDArray[np.int64] | None:
    """The labels of a line; by its loss mask where the trainer makes them from that."""
    ids = arrays["input_ids"]
    if "labels" in arrays:
        labels = arrays["labels"]
        return labels[line].astype(np.int64) if labels.shape == ids.shape else None
    for name in MASKS:
        if name in arrays and arrays[name].shape == ids.shape:
            return np.where(arrays[name][line] != 0, ids[line], IGNORED).astype(np.int64)
    return None


def _positions(arrays: Arrays, line: int) -> NDArray[np.int64] | None:
    positions = arrays.get("position_ids")
    if positions is None:
        return None
    positions = positions[0] if positions.ndim == 3 else positions
    if positions.shape[-1] != arrays["input_ids"].shape[-1]:
        return None
    return np.asarray(positions[line if len(positions) > line else 0].astype(np.int64))


def _given(record: Record) -> Iterator[Given]:
    """The prepared rows of each batch; none where it is not known which are whose."""
    indices = [batch["indices"] for batch in record.facts["batches"]]
    sizes = [len(found) for found in indices if found is not None]
    if len(sizes) < len(indices):
        each = len(record.prepared) // max(1, len(indices))
        sizes = [each] * len(indices)
    if sum(sizes) != len(record.prepared):
        yield from (Given([], None) for _ in indices)
        return
    end = 0
    for size, found in zip(sizes, indices, strict=True):
        yield Given(record.prepared[end : end + size], found)
        end += size


def _ids_of(row: dict[str, Any], side: str) -> list[int] | None:
    """The ids of a prepared row on one side, as collators join them; None where it holds none."""
    if side == "kl":
        return None
    if side and f"{side}_input_ids" in row and "prompt_input_ids" not in row:
        return _list(row[f"{side}_input_ids"])
    answer = {"chosen": "chosen_ids", "rejected": "rejected_ids"}.get(side, "completion_ids")
    if "prompt_ids" in row and answer in row:
        return [*(_list(row["prompt_ids"]) or []), *(_list(row[answer]) or [])]
    return None if side else _list(row.get("input_ids"))


def _list(value: Any) -> list[int] | None:
    return value if isinstance(value, list) and all(isinstance(id, int) for id in value) else None
