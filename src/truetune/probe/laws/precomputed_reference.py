"""Reference log-probabilities that came with the rows are those of the live reference."""

from __future__ import annotations

import torch

from truetune.probe.laws import Cost
from truetune.probe.measuring.law_input_and_result_types import Measured, Trial, Untested
from truetune.probe.measuring.preference_ratios import (
    batches_of_preference_pairs,
    fewest_supervised_tokens,
    log_probabilities_by_live_reference,
    log_probability_tolerance,
    refuse_precomputed_by_another_model,
    require_start_with_reference,
)
from truetune.probe.measuring.trainer_gradients import fix_mode_without_waiting_for_processes

COST: Cost = "quick"


def measure_law(trial: Trial) -> Measured:
    """Largest difference over some rows, in nats/token of the shorter side."""
    require_start_with_reference(trial)
    refuse_precomputed_by_another_model(trial)
    if trial.kind != "dpo" or "ref_chosen_logps" not in trial.batches[0]:
        raise Untested("no reference log-probabilities were computed beforehand")
    worst, rows = 0.0, []
    with fix_mode_without_waiting_for_processes(trial):
        for batch in batches_of_preference_pairs(trial):
            stored = torch.cat([batch["ref_chosen_logps"], batch["ref_rejected_logps"]]).float()
            live = log_probabilities_by_live_reference(trial, batch)
            apart = float((stored - live).abs().max()) / fewest_supervised_tokens(batch)
            worst = apart if not apart <= worst else worst
            rows.append({"given": stored.tolist(), "live": live.tolist()})
    return Measured(
        worst,
        log_probability_tolerance(trial),
        "largest difference of log-probabilities, in nats/token",
        {"rows": rows},
    )
