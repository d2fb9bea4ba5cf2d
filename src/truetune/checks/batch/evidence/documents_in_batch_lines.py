"""Finds the documents in the lines of a batch: where they begin and end, whether lines are packed,
which hold a prompt.

A line is a row of the batch's tensors. Packing puts several rows of the data, its documents, into one line; the audit
numbers them. Everything here also holds for lines whose rows are not known.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

import numpy as np

from truetune.auditing.audit import Audit, Sample
from truetune.render.rendering import Source

PACKING_SETTINGS = ("packing", "sample_packing", "padding_free", "neat_packing")
"""Arguments that put several rows into a line"""
CHAT_SOURCES = (
    Source.SYSTEM,
    Source.USER,
    Source.ASSISTANT,
    Source.REASONING,
    Source.TOOL_CALL,
    Source.TOOL_RESULT,
)


def document_spans(sample: Sample) -> list[tuple[int, int]]:
    """(start, end) of each document of a line."""
    numbers = sample.documents
    edges = np.flatnonzero(np.diff(numbers, prepend=-2, append=-2))
    return [(int(a), int(b)) for a, b in pairwise(edges.tolist()) if numbers[a] >= 0]


def are_batches_packed(audit: Audit) -> bool:
    """Do lines hold several rows, by the arguments or by the batches?"""
    args = audit.facts["args"]
    return any(args.get(name) for name in PACKING_SETTINGS) or any(
        sample.documents.max(initial=0) > 0 for sample in audit.samples
    )


def has_prompt_and_answer(
    sample: Sample, start: int, end: int, ends: Collection[int | None]
) -> bool:
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
    return bool(read.any() or np.isin(sample.source[start:end], CHAT_SOURCES).any())


def keys_of_batches(audit: Audit) -> set[str]:
    """The names under which any batch of any process holds something."""
    return {name for record in audit.records for batch in record.batches for name in batch}
