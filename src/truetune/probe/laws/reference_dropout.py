"""The reference of preference training gives the same log-probabilities twice: no dropout is active in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from truetune.probe.laws import Cost
from truetune.probe.measuring.compute_logits import (
    compute_logits,
    cut_rows,
    dropout_rates,
    first_batch_with_ids,
)
from truetune.probe.measuring.law_input_and_result_types import Measured, Trial, Untested
from truetune.probe.measuring.rounding_tolerance import relative_difference, rounding_tolerance

COST: Cost = "quick"


def measure_law(trial: Trial) -> Measured:
    """Two passes over one batch, with different random numbers, in the trainer's own mode: through the reference,
    and through the policy in training mode."""
    batch = first_batch_with_ids(trial)
    if any(name.startswith(("ref_", "reference_")) for name in batch):
        raise Untested("the reference's log-probabilities were computed beforehand")
    with _reference_model_and_its_mode(trial) as (reference, training):
        apart = {"reference": _difference_of_two_passes(trial, reference, training, batch)}
    apart["policy"] = _difference_of_two_passes(trial, trial.model, True, batch)
    rates: dict[str, int] = {}
    for module, name, rate in dropout_rates(trial.model):
        label = f"{type(module).__name__}.{name} = {rate}"
        rates[label] = rates.get(label, 0) + 1
    value = float(torch.tensor(list(apart.values())).max())
    return Measured(
        value,
        rounding_tolerance(trial.model),
        "relative difference of logits",
        {"by model": apart, "rates": rates},
    )


def _difference_of_two_passes(
    trial: Trial, model: Any, training: bool, batch: dict[str, Any]
) -> float:
    """Relative difference of two passes of a model over a batch, with other random numbers."""
    # A model whose dropout is off gives the same under any seed, to the last bit.
    a, b = (
        compute_logits(model, cut_rows(trial, batch), training=training, seed=seed)
        for seed in (1, 2)
    )
    return relative_difference(a, b)


@contextmanager
def _reference_model_and_its_mode(trial: Trial) -> Iterator[tuple[Any, bool]]:
    """The reference model and whether it is in training mode: a model of its own; or the policy with its adapter
    taken off, or with the adapter `ref`."""
    own = getattr(trial.trainer, "ref_model", None)
    model: Any = trial.model
    adapters = getattr(model, "peft_config", {})
    if isinstance(own, torch.nn.Module):
        yield own, own.training
    elif trial.kind not in ("dpo", "kto") or not hasattr(model, "disable_adapter"):
        raise Untested("the run has no reference")
    elif "ref" in adapters:
        active = model.active_adapter
        # PEFT's way to keep the reference: a second adapter over the same base.
        model.set_adapter("ref")
        try:
            yield model, True
        finally:
            model.set_adapter(active)
    else:
        with model.disable_adapter():
            yield model, True
