"""Losses: what each supervised token of held-out rows costs, in nats, by what it is; rendered and encoded as trained.

Means are over tokens, never over batches or rows, so they do not depend on how rows were put together. Intervals are
over rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from truetune.data.conversation import Conversation
from truetune.encoding.documents import Document
from truetune.encoding.shard import maker_of
from truetune.encoding.stream import ROWS
from truetune.evaluation.row_statistics import bootstrap, paired
from truetune.generation.backends.backend import ScoredIds
from truetune.generation.evaluation_results import ALL_TOKENS, FIRST_TOKEN, LossChange, MeanLoss
from truetune.render.probes import Probes
from truetune.render.rendering import Source

KINDS = (*(source.label for source in Source), FIRST_TOKEN, ALL_TOKENS)
PROMPTS = "prompts"
"""What is not supervised and stands before an answer"""
RowSums = tuple[NDArray[np.float64], NDArray[np.int64]]
BAD = "its answer is labelled a bad one"


@dataclass(frozen=True)
class HeldOut:
    """Rows as examples, each token placed."""

    documents: tuple[Document, ...]
    skipped: Mapping[str, int]
    """Why rows or examples of them are not there, and how many"""
    rows: int
    """That were read"""
    shortened: int
    """Examples that were cut to max_length, as in training"""


@dataclass(frozen=True)
class RowLosses:
    """The losses of rows, summed by kind."""

    rows: NDArray[np.int64]
    """(n,) their numbers"""
    sums: NDArray[np.float64]
    """(n, KINDS) nats"""
    counts: NDArray[np.int64]
    """(n, KINDS) tokens"""

    def only(self, mask: NDArray[np.bool_]) -> RowLosses:
        """Some of the rows."""
        return RowLosses(self.rows[mask], self.sums[mask], self.counts[mask])


def held_out(probes: Probes, rows: Iterable[Conversation]) -> HeldOut:
    """The examples that training makes of rows; of pairs, the wanted answers."""
    maker, source = maker_of(probes, only_reference=True), iter(rows)
    documents: list[Document] = []
    skipped: Counter[str] = Counter()
    count = shortened = 0
    while chunk := list(islice(source, ROWS)):
        count += len(chunk)
        wanted = [_wanted(row) for row in chunk if row.label is not False]
        skipped[BAD] += len(chunk) - len(wanted)
        made = maker.make(wanted)
        documents += made.documents
        skipped.update(dropped.reason for dropped in made.dropped)
        skipped.update(rejected.reason for rejected in made.rejected)
        shortened += made.shortened
    return HeldOut(tuple(documents), dict(+skipped), count, shortened)


def _wanted(row: Conversation) -> Conversation:
    """The wanted answer of a pair or of a row that is judged, which is all that training on preferences sees."""
    if not row.is_preference:
        return row
    before = [{**message, "train": False} for message in row.messages[: row.prompt_messages or 0]]
    return replace(row, messages=[*before, *row.messages[len(before) :]], rejected=None, label=None)


def row_losses(documents: Sequence[Document], scored: Sequence[ScoredIds]) -> RowLosses:
    """Each supervised token once. The first token of an example has nothing before it and is not counted, as in
    training."""
    rows, at = np.unique([document.origin.row for document in documents], return_inverse=True)
    sums = np.zeros((len(rows), len(KINDS)))
    counts = np.zeros((len(rows), len(KINDS)), dtype=np.int64)
    for row, document, score in zip(at.tolist(), documents, scored, strict=True):
        mask, begins = learned(document)
        losses = -score.logprobs[mask].astype(np.float64)
        kinds, first = document.source[mask], begins[mask]
        for table, values in ((sums, losses), (counts, np.ones_like(kinds, dtype=np.int64))):
            table[row, : len(Source)] += np.bincount(kinds, values, len(Source)).astype(table.dtype)
            table[row, -2:] += values[first].sum(), values.sum()
    return RowLosses(rows, sums, counts)


def learned(document: Document) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """((tokens,) is it supervised and has something before it, (tokens,) does an answer begin with it)."""
    mask = document.supervised.copy()
    mask[:1] = False
    begins = mask.copy()
    begins[1:] &= ~document.supervised[:-1]
    return mask, begins


def losses(table: RowLosses, *, seed: int = 0, confidence: float = 0.95) -> tuple[MeanLoss, ...]:
    """Of all tokens, then by kind, those there are."""
    found = []
    for kind in _there(table):
        sums, counts = _column(table, kind)
        interval = bootstrap(sums, counts, seed=seed, confidence=confidence)
        found.append(MeanLoss(kind, int(counts.sum()), int((counts > 0).sum()), *interval))
    return tuple(found)


def changes(
    mine: RowLosses, other: RowLosses, *, seed: int = 0, confidence: float = 0.95
) -> tuple[LossChange, ...]:
    """This model's losses less the other's, of the same tokens."""
    found = []
    for kind in _there(mine):
        (a, counts), (b, theirs) = _column(mine, kind), _column(other, kind)
        if not np.array_equal(counts, theirs):
            raise ValueError("other tokens")
        change = paired(a, b, counts, seed=seed, confidence=confidence)
        found.append(LossChange(kind, int((counts > 0).sum()), *change))
    return tuple(found)


def prompt_losses(documents: Sequence[Document], scored: Sequence[ScoredIds]) -> RowSums:
    """((rows,) nats, (rows,) tokens) of what is not supervised and stands before an answer: the prompts."""
    rows, at = np.unique([document.origin.row for document in documents], return_inverse=True)
    sums, counts = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int64)
    for row, document, score in zip(at.tolist(), documents, scored, strict=True):
        answered = np.flatnonzero(document.supervised)
        mask = ~document.supervised
        mask[:1] = False
        mask[answered[-1] + 1 if len(answered) else 0 :] = False
        sums[row] -= score.logprobs[mask].astype(np.float64).sum()
        counts[row] += int(mask.sum())
    return sums, counts


def prompt_change(
    mine: RowSums, other: RowSums, *, seed: int = 0, confidence: float = 0.95
) -> LossChange | None:
    """This model's loss on the prompts less the other's; None where no row has a prompt."""
    (a, counts), (b, _) = mine, other
    if not counts.any():
        return None
    change = paired(a, b, counts, seed=seed, confidence=confidence)
    return LossChange(PROMPTS, int((counts > 0).sum()), *change)


def _there(table: RowLosses) -> list[str]:
    return [kind for kind in (ALL_TOKENS, *KINDS[:-1]) if table.counts[:, KINDS.index(kind)].any()]


def _column(table: RowLosses, kind: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    at = KINDS.index(kind)
    return table.sums[:, at], table.counts[:, at]
