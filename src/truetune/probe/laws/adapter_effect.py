"""The trained adapter has an effect: other adapter weights give other logits, and without the adapter they are the
base's.
"""

from __future__ import annotations

import math
from typing import Any

from truetune.probe.laws import Cost
from truetune.probe.measuring.law_input_and_result_types import Measured, Trial, Untested
from truetune.probe.measuring.rounding_tolerance import relative_difference, rounding_tolerance
from truetune.probe.measuring.trainer_gradients import (
    ADAPTER_TENSOR,
    fix_mode_without_waiting_for_processes,
    logits_of_first_batch,
    nudge_weights,
    require_whole_weights,
)

COST: Cost = "quick"
# Half: an adapter that works follows wholly (0 in docs/laws.md), one without effect not at all (1).
TOLERANCE = 0.5
# Weights of the adapter that are copied at most, as they are put back: 400 MB in float32. Chosen, not measured.
MAX_COPIED_WEIGHTS = 100_000_000


def measure_law(trial: Trial) -> Measured:
    """How far the logits are from following the adapter when its weights are moved and put back: 0 where they change
    clearly with it on and not at all with it off, 1 where they don't change, or change with it off.
    """
    model: Any = trial.model
    if not getattr(model, "peft_config", None):
        raise Untested("there is no adapter")
    if any(getattr(config, "is_prompt_learning", False) for config in model.peft_config.values()):
        raise Untested("the adapter is a prompt, whose logits are not one for each token")
    require_whole_weights(trial)
    weights = [
        p for name, p in model.named_parameters() if p.requires_grad and ADAPTER_TENSOR.search(name)
    ]
    if not weights or sum(p.numel() for p in weights) > MAX_COPIED_WEIGHTS:
        raise Untested("no tensor of the adapter is trained, or too many to be copied")
    with fix_mode_without_waiting_for_processes(trial):
        on = logits_of_first_batch(trial)
        with model.disable_adapter():
            off = logits_of_first_batch(trial)
        with nudge_weights(weights, 1.0):
            moved = relative_difference(on, logits_of_first_batch(trial))
            with model.disable_adapter():
                leaked = relative_difference(off, logits_of_first_batch(trial))
    clear = rounding_tolerance(model)
    value = max(
        1 - min(moved / clear, 1.0) if math.isfinite(moved) else 0.0, min(leaked / clear, 1.0)
    )
    active = model.active_adapters() if callable(model.active_adapters) else model.active_adapters
    evidence = {
        "moved": moved,
        "leaked": leaked,
        "from the base": relative_difference(off, on),
        "active": list(active),
        "tensors": len(weights),
    }
    return Measured(value, TOLERANCE, "how far the logits are from following the adapter", evidence)
