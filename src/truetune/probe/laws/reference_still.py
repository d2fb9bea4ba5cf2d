"""The reference does not move with the policy: other trained weights, the same reference."""

from __future__ import annotations

from truetune.probe.laws import Cost
from truetune.probe.measuring.law_input_and_result_types import Measured, Trial, Untested
from truetune.probe.measuring.preference_ratios import (
    batches_of_preference_pairs,
    fewest_supervised_tokens,
    log_probabilities_by_live_reference,
    log_probability_tolerance,
    require_start_with_reference,
)
from truetune.probe.measuring.trainer_gradients import (
    choose_last_trained_parameters,
    fix_mode_without_waiting_for_processes,
    nudge_weights,
    require_whole_weights,
)

COST: Cost = "quick"


def measure_law(trial: Trial) -> Measured:
    """Largest change of the reference's log-probabilities when trained weights are moved and put back, in
    nats/token."""
    require_start_with_reference(trial)
    require_whole_weights(trial)
    if trial.kind != "dpo":
        raise Untested("the trainer does not tell its reference's log-probabilities")
    if getattr(trial.trainer, "ref_model", None) is None and not getattr(
        trial.model, "peft_config", None
    ):
        raise Untested("the reference is no model but numbers computed beforehand")
    batch = batches_of_preference_pairs(trial)[0]
    with fix_mode_without_waiting_for_processes(trial):
        before = log_probabilities_by_live_reference(trial, batch)
        if float(
            (log_probabilities_by_live_reference(trial, batch) - before).abs().max()
        ) / fewest_supervised_tokens(batch) > log_probability_tolerance(trial):
            raise Untested("the reference is not the same twice")
        with nudge_weights(list(choose_last_trained_parameters(trial.model).values()), 1.0):
            after = log_probabilities_by_live_reference(trial, batch)
    moved = float((after - before).abs().max()) / fewest_supervised_tokens(batch)
    return Measured(
        moved,
        log_probability_tolerance(trial),
        "change of the reference's log-probabilities, in nats/token",
    )
