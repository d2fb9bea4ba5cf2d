"""Gradient accumulation changes nothing: N micro-batches of one row give the gradient of one batch of N rows."""

from __future__ import annotations

from typing import Any

import torch

from truetune.probe.laws import Cost
from truetune.probe.measuring.law_input_and_result_types import Measured, Trial, Untested
from truetune.probe.measuring.require_row_independence import (
    refuse_losses_depending_on_other_rows,
    refuse_random_collators,
)
from truetune.probe.measuring.trainer_gradients import (
    attention_without_blocks,
    choose_last_trained_parameters,
    coarsest_dtype,
    collate_rows_on_device,
    compute_once_for_same_weights,
    fix_mode_without_waiting_for_processes,
    gradient_distance,
    num_items_in_batch,
    pretend_process_count,
    refuse_sampling,
    refuse_trainers_that_sample_answers,
    require_whole_weights,
    rows_to_collate_shortest_first,
    step_gradients,
)

COST: Cost = "quick"
# Rows that are compared. Of a model with more weights than `LARGE_MODEL_WEIGHTS` two, as each costs two backward
# passes. Both are chosen, not measured.
MAX_ROWS = 4
LARGE_MODEL_WEIGHTS = 50_000_000
# Of the gradient's size. A trainer that is right differs by 8e-7 on a CPU and by 0.0017 on an H200 in float32, and by
# 0.013 and 0.017 in 16 bits, with attention computed whole; one that takes the mean of means by 0.1 and more. Measured
# with both laws over random models of 2 to 16 layers (docs/laws.md).
TOLERANCES = {torch.float64: 1e-6, torch.float32: 0.01}
TOLERANCE_16_BIT = 0.05
# Losses that are of a whole micro-batch by their definition.
TERMS_OF_WHOLE_BATCH = {"kto": "its KL term", "orpo": "its mean over tokens"}


def measure_law(trial: Trial) -> Measured:
    """Relative difference of the gradients of some tensors, through the trainer's own training_step, dropout off."""
    rows = rows_of_unequal_length(trial)
    with (
        fix_mode_without_waiting_for_processes(trial),
        attention_without_blocks(trial, rows) as whole,
        pretend_process_count(trial, 1),
        refuse_sampling(),
    ):
        parameters = list(choose_last_trained_parameters(trial.model).values())
        alone = [collate_rows_on_device(trial, [row]) for row in rows]
        gradients = gradient_distance(
            gradient_of_one_batch(trial, rows), step_gradients(trial, alone, parameters)
        )
        items = num_items_in_batch(trial, alone)
    evidence: dict[str, Any] = gradients | {"rows": len(rows), "counts tokens": items is not None}
    tolerance = gradient_tolerance(trial)
    refuse_difference_by_fused_attention(trial, gradients["relative"], tolerance, whole=whole)
    return Measured(
        gradients["relative"],
        tolerance,
        "relative difference of gradients",
        evidence,
    )


def gradient_of_one_batch(trial: Trial, rows: list[Any]) -> list[torch.Tensor]:
    """The gradient of one batch of these rows in one process."""
    parameters = list(choose_last_trained_parameters(trial.model).values())
    key = f"gradient of {len(rows)}"
    gradient: list[torch.Tensor] = compute_once_for_same_weights(
        trial, key, lambda: step_gradients(trial, [collate_rows_on_device(trial, rows)], parameters)
    )
    return gradient


def rows_of_unequal_length(trial: Trial) -> list[Any]:
    """Rows of lengths as unequal as possible. Raises Untested where the gradients can't be compared."""
    trainer = trial.trainer
    if not hasattr(getattr(trainer, "accelerator", None), "backward"):
        raise Untested("a loop of your own divides its loss itself")
    require_whole_weights(trial)
    refuse_trainers_that_sample_answers(trial)
    if trial.kind in TERMS_OF_WHOLE_BATCH:
        raise Untested(f"the loss is of a whole micro-batch, by {TERMS_OF_WHOLE_BATCH[trial.kind]}")
    if getattr(trainer, "neftune_noise_alpha", None):
        raise Untested("NEFTune adds noise")
    if getattr(trainer, "aux_loss_enabled", False) or getattr(
        trial.model.config, "output_router_logits", False
    ):
        raise Untested("the loss that balances the experts is of a whole micro-batch")
    # These compare or normalise over the rows of a batch, by their papers.
    batchwise = {"aot", "aot_unpaired", "bco_pair", "sft"} & set(
        _as_list(getattr(trainer, "loss_types", None))
    )
    if trial.kind == "dpo" and batchwise:
        raise Untested(f"the loss `{', '.join(sorted(batchwise))}` is of a whole micro-batch")
    rows = rows_to_collate_shortest_first(trial)
    weights = sum(p.numel() for p in trial.model.parameters())
    wanted = 2 if weights > LARGE_MODEL_WEIGHTS else MAX_ROWS
    # The shortest and the longest: where all have one length, a wrong mean equals the right one.
    if len(rows) > wanted:
        shortest = wanted // 2
        rows = [*rows[:shortest], *rows[-(wanted - shortest) :]]
    refuse_random_collators(trial, rows)
    refuse_losses_depending_on_other_rows(trial, rows)
    return rows


def _as_list(value: Any) -> list[str]:
    """A setting that may be one text or several."""
    return list(value) if isinstance(value, list | tuple) else [str(value)]


def gradient_tolerance(trial: Trial) -> float:
    """The tolerance of a gradient, relative to its size."""
    return TOLERANCES.get(coarsest_dtype(trial), TOLERANCE_16_BIT)


def refuse_difference_by_fused_attention(
    trial: Trial, value: float, tolerance: float, *, whole: bool
) -> None:
    """Raises Untested for a difference that a fused attention's rounding may have made."""
    on_cpu = next(trial.model.parameters()).device.type == "cpu"
    if whole or on_cpu or coarsest_dtype(trial) in TOLERANCES or value <= tolerance:
        return
    raise Untested(
        "in 16 bits a fused attention rounds by the shape of a batch, which may be the whole difference: "
        "audit with attn_implementation='sdpa' and shorter rows, or in float32"
    )
