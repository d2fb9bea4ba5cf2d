"""Compares what rows and settings keep out of the loss with what the batches label.

A mask gets lost in three ways: the collator makes labels of its own, the column is removed on the way, or the setting
never applied to rows of this form. Several rules tell them, each its own way, so all of it is asked here: a rule stays
silent where another one knows more (`does_other_finding_explain_prompt_loss`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.auditing.audit import Audit, Sample
from truetune.checks.batch.evidence.answer_spans import (
    count_tokens_without_padding,
    lines_with_unshifted_labels,
    row_format_of_audit,
)
from truetune.probe.run_record import Record
from truetune.render.rendering import IGNORED

# As TRL, Axolotl, transformers' apply_chat_template and hand-made data name them.
MASK_COLUMNS = (
    "assistant_masks",
    "assistant_mask",
    "completion_mask",
    "loss_mask",
    "answer_mask",
    "loss_weights",
)
MASK_SETTINGS = ("assistant_only_loss", "completion_only_loss")
# At 0.9 rows whose short prompts are masked as they should be would count as all learned; at 1, a
# BOS that a collator masks would hide that the prompts are in the loss.
ALL_LEARNED_SHARE = 0.99
"""Share of supervised tokens from which all are said to be: the first of each document may be masked"""


class MaskLoss(NamedTuple):
    """Tokens that a column of the rows keeps out of the loss, and that are in it."""

    column: str
    tokens: int
    """Masked by the column, and supervised"""
    masked: int
    """Masked by the column"""
    places: tuple[tuple[Sample, int], ...]
    """The first of each line"""


class AlignedColumn(NamedTuple):
    """A column of the rows of one micro-batch beside its lines, end to end: (tokens,) each."""

    values: NDArray[np.float64]
    supervised: NDArray[np.bool_]
    lines: list[Sample]
    owners: NDArray[np.int64]
    """Which of the lines"""
    places: NDArray[np.int64]
    """Place in its line"""


def align_column_with_lines(audit: Audit, column: str) -> Iterator[AlignedColumn]:
    """Micro-batches whose rows hold the column and just the tokens of the lines."""
    by_batch: dict[tuple[int, int], list[Sample]] = {}
    for sample in lines_with_unshifted_labels(audit):
        by_batch.setdefault((sample.rank, sample.batch), []).append(sample)
    for record in audit.records:
        at = 0
        for number, batch in enumerate(record.facts["batches"]):
            # The rows of all batches lie end to end, in the order in which the collator was given
            # them.
            rows = record.prepared[at : at + _count_rows_of_micro_batch(record, batch)]
            at += len(rows)
            lines = by_batch.get((record.facts["rank"], number), [])
            aligned = _align_rows(rows, lines, column)
            if aligned is not None:
                yield aligned


def _align_rows(
    rows: list[dict[str, Any]], lines: list[Sample], column: str
) -> AlignedColumn | None:
    """A column of some rows beside the lines that were made of them.

    Rows may be packed, so that rows and lines are compared end to end and not one by one.

    Returns:
        None where the column is no list of numbers, or where the tokens of rows and lines are not the same: then the
        collator has cut or changed them, and places can't be told.
    """
    values, ids = (
        _concatenate_column_of_lists(rows, column),
        _concatenate_column_of_lists(rows, "input_ids"),
    )
    # Rows that are padded already bring their pads along, and their mask with values for these.
    is_padded = ids.size > sum(map(count_tokens_without_padding, lines))
    kept = [np.ones_like(line.padding) if is_padded else ~line.padding for line in lines]
    counts = [int(places.sum()) for places in kept]
    if not values.size or not values.size == ids.size == sum(counts):
        return None
    both = list(zip(lines, kept, strict=True))
    if not np.array_equal(np.concatenate([line.ids[places] for line, places in both]), ids):
        return None
    return AlignedColumn(
        values,
        np.concatenate([line.supervised[places] for line, places in both]),
        lines,
        np.repeat(np.arange(len(lines)), counts),
        np.concatenate([np.flatnonzero(places) for places in kept]),
    )


def _count_rows_of_micro_batch(record: Record, batch: dict[str, Any]) -> int:
    """Rows of one micro-batch: as drawn, else an even share of all that were seen."""
    if batch["indices"] is not None:
        return len(batch["indices"])
    return len(record.prepared) // max(len(record.facts["batches"]), 1)


def _concatenate_column_of_lists(rows: list[dict[str, Any]], column: str) -> NDArray[np.float64]:
    """A column of lists end to end; empty where a row has none."""
    values = [row.get(column) for row in rows]
    if not all(_is_list_of_numbers(value) for value in values):
        return np.empty(0)
    return np.array([number for value in values for number in value or ()], np.float64)


def _is_list_of_numbers(value: Any) -> bool:
    """Is a value a list of numbers? One of nothing is."""
    return isinstance(value, list) and all(isinstance(number, int | float) for number in value)


def labels_learned_despite_minus_100(audit: Audit) -> MaskLoss | None:
    """The tokens that the rows label -100 and the batch labels; None if there are none."""
    loss = count_minus_100_labels_and_learned(audit)
    return loss if loss.tokens else None


def count_minus_100_labels_and_learned(audit: Audit) -> MaskLoss:
    """The labels of the rows that are -100, and how many of them the batch labels."""
    return _compare_column_with_labels(audit, "labels", IGNORED)


def tokens_learned_despite_mask(audit: Audit) -> MaskLoss | None:
    """Tokens that a mask column of the rows leaves out, where the batch has a label."""
    return next((loss for loss in masked_and_learned_tokens_by_column(audit) if loss.tokens), None)


def masked_and_learned_tokens_by_column(audit: Audit) -> Iterator[MaskLoss]:
    """Each mask column that reaches the collator without labels: what it leaves out, and what of that is learned."""
    used = audit.facts["data"]["used"]
    if "labels" not in used:
        columns = [
            name
            for name in MASK_COLUMNS
            if name in used and not _is_mask_column_disabled(audit, name)
        ]
        yield from (_compare_column_with_labels(audit, name, 0) for name in columns)


def _is_mask_column_disabled(audit: Audit, column: str) -> bool:
    """Do the settings say that the column is not to be used?"""
    return column == "completion_mask" and audit.facts["args"].get("completion_only_loss") is False


def _compare_column_with_labels(audit: Audit, column: str, masked: int) -> MaskLoss:
    """What a column leaves out of the loss, against the labels of the batches.

    Args:
        audit: the run.
        column: a column of the rows with one number for each token.
        masked: the number by which it leaves a token out: 0 in a mask, -100 in labels.
    """
    tokens = total = 0
    first: dict[str, tuple[Sample, int]] = {}
    for batch in align_column_with_lines(audit, column):
        is_masked = batch.values == masked
        wrong = np.flatnonzero(is_masked & batch.supervised)
        total += int(is_masked.sum())
        tokens += len(wrong)
        for owner in np.unique(batch.owners[wrong]).tolist():
            sample = batch.lines[owner]
            place = batch.places[wrong[batch.owners[wrong] == owner][0]]
            first.setdefault(sample.place, (sample, int(place)))
    return MaskLoss(column, tokens, total, tuple(first.values()))


def are_all_tokens_learned(audit: Audit) -> bool:
    """Is every token of the batches in the loss?"""
    supervised, total = count_learned_and_all_tokens(audit)
    return bool(total) and supervised >= ALL_LEARNED_SHARE * total


def count_learned_and_all_tokens(audit: Audit) -> tuple[int, int]:
    """(tokens of the batches that are in the loss, all tokens), without padding."""
    supervised = total = 0
    for sample in lines_with_unshifted_labels(audit):
        supervised += int((~sample.padding & sample.supervised).sum())
        total += int((~sample.padding).sum())
    return supervised, total


def mask_column_without_effect(audit: Audit) -> str | None:
    """The mask column of the given rows, where all of their tokens are in the loss for all that."""
    column = mask_column_name_of_unlabelled_rows(audit)
    return column if column and are_all_tokens_learned(audit) else None


def mask_column_name_of_unlabelled_rows(audit: Audit) -> str | None:
    """The mask column of given rows that have no labels."""
    columns = (audit.facts["data"]["given"] or {}).get("columns") or ()
    mask = next(
        (
            name
            for name in MASK_COLUMNS
            if name in columns and not _is_mask_column_disabled(audit, name)
        ),
        None,
    )
    return None if "labels" in columns else mask


def prompt_mask_setting_without_effect(audit: Audit) -> str | None:
    """The setting that should keep prompts out of the loss, where every token is in it."""
    named = prompt_mask_setting(audit)
    return named if named and are_all_tokens_learned(audit) else None


def prompt_mask_setting(audit: Audit) -> str | None:
    """The setting that should keep prompts out of the loss; TRL's default counts."""
    args = audit.facts["args"]
    named = next((name for name in MASK_SETTINGS if args.get(name) is True), None)
    is_sft = any("SFTTrainer" in base for base in audit.facts["trainer"]["bases"])
    if (
        not named
        and is_sft
        and args.get("completion_only_loss") is None
        and row_format_of_audit(audit) == "prompt-completion"
    ):
        return "completion_only_loss"
    return named


def explain_lost_mask(audit: Audit) -> str | None:
    """How the mask that a setting asks for was lost, where the rows reach the collator without labels."""
    data, args = audit.facts["data"], audit.facts["args"]
    if "labels" in data["used"]:
        return None
    for name, text in (("packing", "packing"), ("use_liger_kernel", "the Liger kernel")):
        if args.get(name) is True:
            return text
    columns = (data["given"] or {}).get("columns")
    return "the preparation of the rows" if columns and "input_ids" not in columns else None


def does_other_finding_explain_prompt_loss(audit: Audit) -> bool:
    """Does another finding explain more closely why prompts are in the loss?"""
    return bool(
        labels_learned_despite_minus_100(audit)
        or tokens_learned_despite_mask(audit)
        or mask_column_without_effect(audit)
        or prompt_mask_setting_without_effect(audit)
    )
