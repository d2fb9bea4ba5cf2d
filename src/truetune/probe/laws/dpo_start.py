"""Before the first step the policy is its reference: all rewards are 0, and the sigmoid loss is ln 2."""

from __future__ import annotations

import math

from truetune.probe.laws import Cost
from truetune.probe.measuring.law_input_and_result_types import Measured, Trial
from truetune.probe.measuring.preference_ratios import (
    batches_of_preference_pairs,
    fewest_supervised_tokens,
    is_reference_precomputed,
    log_probability_tolerance,
    loss_and_log_ratios_by_side,
    refuse_precomputed_by_another_model,
    require_start_with_reference,
)
from truetune.probe.measuring.trainer_gradients import fix_mode_without_waiting_for_processes

COST: Cost = "quick"
LN2 = math.log(2)
# The loss of TRL's DPOTrainer where all log-ratios are 0.
LOSS_AT_ZERO_RATIOS = {
    "sigmoid": LN2,
    "sigmoid_norm": LN2,
    "robust": LN2,
    "aot": LN2,
    "nca_pair": 2 * LN2,
    "hinge": 1.0,
    "apo_zero": 1.0,
    "apo_down": 1.0,
    "discopop": (LN2 + 1) / 2,
}


def measure_law(trial: Trial) -> Measured:
    """Largest log-ratio of policy to reference, in nats/token of the shorter side, without dropout."""
    require_start_with_reference(trial)
    refuse_precomputed_by_another_model(trial)
    worst = 0.0
    rows: list[dict[str, float]] = []
    with fix_mode_without_waiting_for_processes(trial):
        for batch in batches_of_preference_pairs(trial):
            loss, ratios = loss_and_log_ratios_by_side(trial, batch)
            apart = max(abs(value) for value in ratios.values()) / fewest_supervised_tokens(batch)
            worst = apart if not apart <= worst else worst
            rows.append({"loss": loss} | ratios)
    types = getattr(trial.trainer, "loss_types", None) or [
        getattr(trial.trainer, "loss_type", None)
    ]
    evidence = {
        "rows": rows,
        "expected": LOSS_AT_ZERO_RATIOS.get(types[0])
        if trial.kind == "dpo" and len(types) == 1
        else None,
        "precomputed": is_reference_precomputed(trial),
        "reference": _describe_reference(trial),
    }
    # docs/laws.md has 0 for a correct start, and 0.075 for the fault: half of the tolerance or double decides alike.
    return Measured(
        worst,
        log_probability_tolerance(trial),
        "largest log-ratio of policy to reference, in nats/token",
        evidence,
    )


def _describe_reference(trial: Trial) -> str:
    """What the trainer takes as its reference."""
    model = getattr(trial.trainer, "ref_model", None)
    if model is not None:
        return f"a separate model ({type(model).__name__})"
    adapters = list(getattr(trial.model, "peft_config", {}))
    if "ref" in adapters:
        return "the adapter `ref`"
    return "the model without its adapter" if adapters else "the model before the first step"
