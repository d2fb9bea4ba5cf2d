"""Padding changes nothing: the logits of a row's own tokens are the same with more padding."""

from __future__ import annotations

from typing import Any

import torch

from truetune.probe.laws import Cost
from truetune.probe.measuring.compute_logits import (
    compute_logits,
    first_batch_with_ids,
    logit_difference_allowed_by_rounding,
    padding_side,
    stack_rows,
    unpadded_documents,
)
from truetune.probe.measuring.law_input_and_result_types import Measured, Trial, Untested
from truetune.probe.measuring.packed_documents import holds_packed_line
from truetune.probe.measuring.rounding_tolerance import relative_difference_allowing_expert_routing

COST: Cost = "quick"
# One, and an odd number that is no multiple of a kernel's block.
EXTRA_PADDING_TOKENS = (1, 7)


def measure_law(trial: Trial) -> Measured:
    """Logits of rows alone against those of the same rows padded on the side where the trainer pads, and on the left
    with positions that do not count the pads, as generation gives them."""
    if trial.tokenizer is None or trial.tokenizer.pad_token_id is None:
        raise Untested("there is no pad token")
    if holds_packed_line(first_batch_with_ids(trial)):
        raise Untested("the batches are packed, without padding")
    rows = _rows_of_unequal_length(unpadded_documents(trial))
    alone = [
        compute_logits(
            trial.model, {"input_ids": row[None], "attention_mask": torch.ones_like(row)[None]}
        )[0]
        for row in rows
    ]
    # Where no batch has padding yet, the side that a collator pads on unless told otherwise.
    side = padding_side(trial) or "right"
    worst: dict[str, float] = {}
    for amount in EXTRA_PADDING_TOKENS:
        worst[f"{amount} more on the {side}"] = _padding_difference(
            trial, rows, alone, stack_rows(trial, rows, side, amount)
        )
    left: dict[str, Any] = stack_rows(trial, rows, "left", EXTRA_PADDING_TOKENS[-1])
    # As generate() makes them: pads are not counted, and the first token of a row is at 0.
    left["position_ids"] = (left["attention_mask"].cumsum(-1) - 1).clamp_min(0)
    worst["left, as in generation"] = _padding_difference(trial, rows, alone, left)
    evidence = {"by padding": worst, "rows": len(rows), "longest": len(rows[0])}
    first = {"input_ids": rows[0][None], "attention_mask": torch.ones_like(rows[0])[None]}
    explained = logit_difference_allowed_by_rounding(trial.model, first, alone[0][None])
    return Measured(
        _largest_value(worst.values()), explained, "relative difference of logits", evidence
    )


def _rows_of_unequal_length(rows: list[torch.Tensor]) -> list[torch.Tensor]:
    """The longest row, the shortest, and one between."""
    return list({len(row): row for row in (rows[0], rows[len(rows) // 2], rows[-1])}.values())


def _padding_difference(
    trial: Trial,
    rows: list[torch.Tensor],
    alone: list[torch.Tensor],
    padded: dict[str, torch.Tensor],
) -> float:
    """Largest relative difference of the logits of the rows' own tokens, alone and padded."""
    values = compute_logits(trial.model, padded)
    own = [values[i][padded["attention_mask"][i] != 0] for i in range(len(rows))]
    return _largest_value(
        relative_difference_allowing_expert_routing(a, b, trial.model)
        for a, b in zip(alone, own, strict=True)
    )


def _largest_value(values: Any) -> float:
    """The largest number; nan where one is, which Python's own `max` may pass by."""
    return float(torch.tensor(list(values), dtype=torch.float64).max())
