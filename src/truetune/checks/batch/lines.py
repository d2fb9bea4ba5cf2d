"""Lines of a batch: where their documents begin and end, whether they are packed, the two sides of pairs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.auditing.audit import Audit, Sample
from truetune.probe.run_record import Arrays
from truetune.render.rendering import Source

PACKED = ("packing", "sample_packing", "padding_free", "neat_packing")
"""Arguments that put several rows into a line"""
CHAT = (
    Source.SYSTEM,
    Source.USER,
    Source.ASSISTANT,
    Source.REASONING,
    Source.TOOL_CALL,
    Source.TOOL_RESULT,
)
PAIRED = ("dpo", "orpo", "reward", "cpo", "simpo")


def documents(sample: Sample) -> list[tuple[int, int]]:
    """(start, end) of each document of a line."""
    numbers = sample.documents
    edges = np.flatnonzero(np.diff(numbers, prepend=-2, append=-2))
    return [(int(a), int(b)) for a, b in pairwise(edges.tolist()) if numbers[a] >= 0]


def is_packed(audit: Audit) -> bool:
    """Do lines hold several rows, by the arguments or by the batches?"""
    args = audit.facts["args"]
    return any(args.get(name) for name in PACKED) or any(
        sample.documents.max(initial=0) > 0 for sample in audit.samples
    )


def is_chat(sample: Sample, start: int, end: int, ends: Collection[int | None]) -> bool:
    """Is something of this range to be learned, and something only to be read? `ends` are ids that close documents:
    a collator that masks them makes no prompt of plain text.
    """
    learned = sample.supervised[start:end]
    if not learned.any():
        return False
    read = (
        ~learned
        & ~sample.padding[start:end]
        & ~np.isin(sample.ids[start:end], [id for id in ends if id is not None])
    )
    return bool(read.any() or np.isin(sample.source[start:end], CHAT).any())


class Pair(NamedTuple):
    """One pair of a batch: (tokens,) each, without padding."""

    place: str
    chosen: NDArray[np.int64]
    chosen_answer: NDArray[np.bool_]
    """Is the token part of the answer? All where the batch does not say."""
    rejected: NDArray[np.int64]
    rejected_answer: NDArray[np.bool_]


def pairs(audit: Audit) -> Iterator[Pair]:
    """The pairs of all batches: chosen and rejected under names of their own, or in the two halves of input_ids."""
    for record in audit.records:
        for number, batch in enumerate(record.batches):
            chosen, rejected = _side(batch, "chosen_"), _side(batch, "rejected_")
            if not chosen and audit.kind in PAIRED:
                whole = _side(batch, "")
                chosen, rejected = whole[: len(whole) // 2], whole[len(whole) // 2 :]
            for line, (one, other) in enumerate(zip(chosen, rejected, strict=False)):
                yield Pair(f"batch {number}, pair {line}", *one, *other)


def _side(batch: Arrays, prefix: str) -> list[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
    ids = batch.get(f"{prefix}input_ids")
    if ids is None or ids.ndim != 2:
        return []
    kept = batch.get(f"{prefix}attention_mask", np.ones_like(ids)) != 0
    answer = np.ones(ids.shape, np.bool_)
    if f"{prefix}completion_mask" in batch:
        answer = batch[f"{prefix}completion_mask"] != 0
    elif f"{prefix}labels" in batch and batch[f"{prefix}labels"].shape == ids.shape:
        answer = batch[f"{prefix}labels"] != -100
    return [(ids[i][kept[i]].astype(np.int64), answer[i][kept[i]]) for i in range(len(ids))]
