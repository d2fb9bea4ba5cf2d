"""Refuses laws that put rows into other batches, where a row's loss depends on the others or the collator draws at
random. It is proved on the run's own loss.

A loss is of single rows where changing one row changes it by the same amount, whatever the other rows are. A loss with
negatives from its batch (contrastive, ranking), or one that balances a whole batch, is not: another batch is another
task, and no division makes the two alike. A collator that draws at random (masks, noise) makes another batch of the
same rows each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from truetune.probe.measuring.compute_logits import alter_tokens
from truetune.probe.measuring.law_input_and_result_types import Trial, Untested
from truetune.probe.measuring.trainer_gradients import (
    collate_rows_on_device,
    fix_mode_without_waiting_for_processes,
    loss_of,
)

# Share of one row's effect that may depend on the other rows: rounding makes some, contrastive losses 0.2 and more.
MAX_JOINT_SHARE = 0.05
IGNORED = -100


def refuse_random_collators(trial: Trial, rows: Sequence[Any]) -> None:
    """Raises Untested where the collator makes another batch of the same rows."""
    one, other = collate_rows_on_device(trial, rows), collate_rows_on_device(trial, rows)
    for key, value in one.items():
        if isinstance(value, torch.Tensor) and not torch.equal(value, torch.as_tensor(other[key])):
            raise Untested(
                f"the collator draws {key} at random, so that two batches of the same rows differ"
            )


def refuse_losses_depending_on_other_rows(trial: Trial, rows: Sequence[Any]) -> None:
    """Raises Untested where the loss of a row depends on the other rows of its micro-batch.

    Two rows, each with its own or with other tokens, make four losses. Of a sum over rows (divided by whatever stays
    the same) the two effects add up.
    """
    batch = collate_rows_on_device(trial, rows[:2])
    ids = [
        key
        for key, value in batch.items()
        if key.endswith("input_ids")
        and _line_count_of_matrix(value) % 2 == 0 < _line_count_of_matrix(value)
    ]
    if not ids or len(rows) < 2:
        return
    with fix_mode_without_waiting_for_processes(trial), torch.no_grad():
        both = [
            float(loss_of(trial, _alter_tokens_of_rows(trial, batch, ids, halves)))
            for halves in ((), (0,), (1,), (0, 1))
        ]
    # The mixed second difference: 0 for every sum over rows, whatever the single losses are.
    neither, first, second, together = both
    effect = max(abs(first - neither), abs(second - neither))
    if abs(together - first - second + neither) > MAX_JOINT_SHARE * effect > 0:
        raise Untested(
            "the loss of a row depends on the other rows of its micro-batch (negatives, or a term"
            " of the whole batch), so that other micro-batches are another task"
        )


def _line_count_of_matrix(value: Any) -> int:
    """Lines of a (lines, tokens) tensor; 0 of anything else."""
    return len(value) if isinstance(value, torch.Tensor) and value.dim() == 2 else 0


def _alter_tokens_of_rows(
    trial: Trial, batch: Mapping[str, Any], keys: Sequence[str], halves: Sequence[int]
) -> dict[str, Any]:
    """The batch with other tokens in the lines of these of its two rows; labels that repeat them follow."""
    changed = dict(batch)
    for key in keys:
        ids = batch[key]
        lines = (
            torch.arange(len(ids), device=ids.device) % 2
        )  # a pair's sides follow one another, row by row
        chosen = torch.isin(lines, torch.tensor(list(halves), device=ids.device))[
            :, None
        ] & _attended_tokens(batch, key)
        changed[key] = torch.where(chosen, alter_tokens(ids, trial), ids)
        name = f"{key.removesuffix('input_ids')}labels"
        labels = batch.get(name)
        if isinstance(labels, torch.Tensor) and labels.shape == ids.shape:
            # Labels that repeat the ids must follow them, or the loss would be of other targets.
            changed[name] = torch.where((labels != IGNORED) & (labels == ids), changed[key], labels)
    return changed


def _attended_tokens(batch: Mapping[str, Any], key: str) -> torch.Tensor:
    """(lines, tokens) bool: which of the ids under this key are no padding; all without a mask."""
    mask = batch.get(f"{key.removesuffix('input_ids')}attention_mask")
    if isinstance(mask, torch.Tensor) and mask.shape == batch[key].shape:
        return mask != 0
    return torch.ones_like(batch[key], dtype=torch.bool)
