"""The attention implementation that the run uses computes what the eager one does."""

from __future__ import annotations

from typing import Any

import torch

from truetune.probe.laws import Cost
from truetune.probe.measuring.compute_logits import (
    compute_logits,
    cut_rows,
    first_batch_with_ids,
    logit_difference_allowed_by_rounding,
    padding_side,
    stack_rows,
    unpadded_documents,
)
from truetune.probe.measuring.law_input_and_result_types import Measured, Trial, Untested
from truetune.probe.measuring.rounding_tolerance import relative_difference_allowing_expert_routing

COST: Cost = "quick"


def measure_law(trial: Trial) -> Measured:
    """Measure the logits of a padded batch with the implementation of the run against eager's, at the
    tokens. A nan at a padded place counts too, since it spreads in the backward pass.
    """
    model: Any = trial.model
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    used = getattr(getattr(base, "config", None), "_attn_implementation", None)
    if used is None or not hasattr(base, "set_attn_implementation"):
        raise Untested("the model has no attention implementation to set")
    if used == "eager":
        raise Untested("the run uses eager attention itself")
    if not getattr(base, "_can_set_attn_implementation", lambda: True)():
        raise Untested("the model does not let its attention implementation be set")
    inputs = _padded_batch(trial)
    own = compute_logits(model, inputs)
    base.set_attn_implementation("eager")
    eager = compute_logits(model, inputs)
    mask = inputs.get("attention_mask")
    kept = mask != 0 if isinstance(mask, torch.Tensor) and mask.dim() == 2 else slice(None)
    strays = int(own.isnan().any(-1).sum())
    value = (
        relative_difference_allowing_expert_routing(eager[kept], own[kept], model)
        if not strays
        else float("nan")
    )
    evidence = {"used": used, "places with nan": strays, "rows": len(own), "longest": own.shape[1]}
    # docs/laws.md has 2.5e-7 for implementations that agree, and 0.075 for one that reads padding.
    tolerance = logit_difference_allowed_by_rounding(model, inputs, eager)
    return Measured(value, tolerance, "relative difference of logits", evidence)


def _padded_batch(trial: Trial) -> dict[str, torch.Tensor]:
    """Real rows of unequal length, padded as the trainer does; the batch as it is where it holds more than text."""
    try:
        rows = unpadded_documents(trial)
    except Untested:
        return cut_rows(trial, first_batch_with_ids(trial))
    chosen = list({len(row): row for row in (rows[0], rows[len(rows) // 2], rows[-1])}.values())
    return stack_rows(trial, chosen, padding_side(trial) or "right", extra=1)
