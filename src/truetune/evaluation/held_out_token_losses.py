"""Computes the losses of the supervised tokens of held-out rows, in nats and by kind of token; rows are rendered and
encoded as trained.

Means are over tokens, never over batches or rows, so they do not depend on how rows were put together; intervals are
over rows, whose tokens depend on each other. The trade-off: a long row weighs more than a short one, as in training.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from truetune.data.conversation import Conversation
from truetune.encoding.encode_shard import make_document_maker
from truetune.encoding.make_documents_or_reject_rows import Document
from truetune.encoding.render_and_encode_in_two_threads import ROWS
from truetune.evaluation.confidence_intervals_over_rows import bootstrap_mean, paired_difference
from truetune.generation.backends.backend import ScoredIds
from truetune.generation.evaluation_loss_and_score_types import (
    ALL_TOKENS,
    FIRST_TOKEN,
    LossChange,
    MeanLoss,
)
from truetune.render.rendering import Source
from truetune.render.template_probes import Probes

KINDS = (*(source.label for source in Source), FIRST_TOKEN, ALL_TOKENS)
# No Source: in a chat it is headers, system text and questions together.
PROMPTS = "prompts"
"""What is not supervised and stands before an answer"""
RowSums = tuple[NDArray[np.float64], NDArray[np.int64]]
# Shown beside the reasons that the encoder gives.
REJECTED_ANSWER = "its answer is labelled a bad one"


@dataclass(frozen=True)
class EncodedRows:
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

    def select_rows(self, mask: NDArray[np.bool_]) -> RowLosses:
        """The losses of the rows that a mask selects."""
        return RowLosses(self.rows[mask], self.sums[mask], self.counts[mask])


def encode_rows_as_trained(probes: Probes, rows: Iterable[Conversation]) -> EncodedRows:
    """The examples that training makes of rows; of pairs, the wanted answers.

    Args:
        probes: tokenizer, template and settings of the training.
        rows: what is encoded, in chunks: they need not fit into memory.
    """
    maker, source = make_document_maker(probes, only_reference=True), iter(rows)
    documents: list[Document] = []
    skipped: Counter[str] = Counter()
    count = shortened = 0
    for chunk in iter(lambda: list(islice(source, ROWS)), []):
        count += len(chunk)
        # label False: a row of KTO whose answer is a bad one; a low loss on it would be no merit.
        wanted = [_without_rejected_side(row) for row in chunk if row.label is not False]
        skipped[REJECTED_ANSWER] += len(chunk) - len(wanted)
        shard = maker.make(wanted)
        documents += shard.documents
        skipped.update(dropped.reason for dropped in shard.dropped)
        skipped.update(rejected.reason for rejected in shard.rejected)
        shortened += shard.shortened
    # Unary plus drops reasons of count 0.
    return EncodedRows(tuple(documents), dict(+skipped), count, shortened)


def _without_rejected_side(row: Conversation) -> Conversation:
    """The wanted answer of a pair, or of a row that is judged, which is all that is measured."""
    if not row.is_preference:
        return row
    # The prompt of a pair is no answer, though its turns may be the assistant's.
    before = [{**message, "train": False} for message in row.messages[: row.prompt_messages or 0]]
    return replace(row, messages=[*before, *row.messages[len(before) :]], rejected=None, label=None)


def sum_row_losses(documents: Sequence[Document], scored: Sequence[ScoredIds]) -> RowLosses:
    """The losses of each row, summed by kind of token.

    Each supervised token counts once. The first token of an example has nothing before it and is not counted, as in
    training.

    Args:
        documents: the encoded examples; a row may have several.
        scored: what the model gave to each.
    """
    rows, row_indexes = np.unique(
        [document.origin.row for document in documents], return_inverse=True
    )
    sums = np.zeros((len(rows), len(KINDS)))
    counts = np.zeros((len(rows), len(KINDS)), dtype=np.int64)
    sources = len(Source)
    for row, document, score in zip(row_indexes.tolist(), documents, scored, strict=True):
        mask, begins = scored_positions_and_answer_starts(document)
        # float64: a sum of 100,000 float32 losses is off in the fourth digit.
        losses = -score.logprobs[mask].astype(np.float64)
        kinds, is_first = document.source[mask], begins[mask]
        sums[row, :sources] += np.bincount(kinds, losses, sources)
        counts[row, :sources] += np.bincount(kinds, minlength=sources)
        # The last two kinds are FIRST_TOKEN and ALL_TOKENS, which are no sources.
        sums[row, -2:] += losses[is_first].sum(), losses.sum()
        counts[row, -2:] += int(is_first.sum()), len(losses)
    return RowLosses(rows, sums, counts)


def scored_positions_and_answer_starts(
    document: Document,
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """((tokens,) is it supervised and has something before it, (tokens,) does an answer begin with it)."""
    mask = document.supervised.copy()
    # Nothing predicts the first token of an example.
    mask[:1] = False
    begins = mask.copy()
    begins[1:] &= ~document.supervised[:-1]
    return mask, begins


def mean_losses(
    table: RowLosses, *, seed: int = 0, confidence: float = 0.95
) -> tuple[MeanLoss, ...]:
    """The mean of all tokens, then by kind, of the kinds there are."""
    means = []
    for kind in _present_kinds(table):
        sums, counts = _losses_and_counts_of_kind(table, kind)
        interval = bootstrap_mean(sums, counts, seed=seed, confidence=confidence)
        means.append(MeanLoss(kind, int(counts.sum()), int((counts > 0).sum()), *interval))
    return tuple(means)


def loss_changes(
    table: RowLosses, other: RowLosses, *, seed: int = 0, confidence: float = 0.95
) -> tuple[LossChange, ...]:
    """This model's losses less the other's, in nats/token, by kind of token, all of them first.

    Args:
        table: of this model.
        other: of the other model on the same rows.
        seed: of the intervals' draws.
        confidence: of the intervals.

    Raises:
        ValueError: the tokens are not the same.
    """
    changes = []
    for kind in _present_kinds(table):
        sums, counts = _losses_and_counts_of_kind(table, kind)
        other_sums, other_counts = _losses_and_counts_of_kind(other, kind)
        if not np.array_equal(counts, other_counts):
            raise ValueError("other tokens")
        change = paired_difference(sums, other_sums, counts, seed=seed, confidence=confidence)
        changes.append(LossChange(kind, int((counts > 0).sum()), *change))
    return tuple(changes)


def sum_prompt_losses(documents: Sequence[Document], scored: Sequence[ScoredIds]) -> RowSums:
    """((rows,) nats, (rows,) tokens) of what is not supervised and stands before an answer: the prompts.

    A model that was trained on its prompts by mistake is better at them than its base; the answers don't show it.
    """
    rows, row_indexes = np.unique(
        [document.origin.row for document in documents], return_inverse=True
    )
    sums, counts = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int64)
    for row, document, score in zip(row_indexes.tolist(), documents, scored, strict=True):
        supervised = np.flatnonzero(document.supervised)
        mask = ~document.supervised
        mask[:1] = False
        # What follows the last answer is read by nobody: the newline after a stop token, say.
        mask[supervised[-1] + 1 if len(supervised) else 0 :] = False
        sums[row] -= score.logprobs[mask].astype(np.float64).sum()
        counts[row] += int(mask.sum())
    return sums, counts


def prompt_loss_change(
    prompt_sums: RowSums, other: RowSums, *, seed: int = 0, confidence: float = 0.95
) -> LossChange | None:
    """This model's loss on the prompts less the other's, in nats/token; None where no row has a prompt.

    Args:
        prompt_sums: what `sum_prompt_losses` gives for this model.
        other: the same for the other, of the same tokens.
        seed: of the interval's draws.
        confidence: of the interval.
    """
    (sums, counts), (other_sums, _) = prompt_sums, other
    if not counts.any():
        return None
    change = paired_difference(sums, other_sums, counts, seed=seed, confidence=confidence)
    return LossChange(PROMPTS, int((counts > 0).sum()), *change)


def _present_kinds(table: RowLosses) -> list[str]:
    """The kinds of token that the rows have, all of them together first."""
    return [kind for kind in (ALL_TOKENS, *KINDS[:-1]) if table.counts[:, KINDS.index(kind)].any()]


def _losses_and_counts_of_kind(
    table: RowLosses, kind: str
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """((rows,) nats, (rows,) tokens) of one kind."""
    column = KINDS.index(kind)
    return table.sums[:, column], table.counts[:, column]
