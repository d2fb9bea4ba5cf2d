"""The reference does not move with the policy: other trained weights, the same reference."""

from __future__ import annotations

from truetune.probe.laws import Cost, Measured, Trial, Untested
from truetune.probe.laws.gradients import nudged, quiet, some, whole
from truetune.probe.laws.preferences import batches, of_a_start, reference_of, tokens, tolerance

COST: Cost = "quick"


def measure(trial: Trial) -> Measured:
    """Largest change of the reference's log-probabilities when trained weights are moved and put back, in nats a
    token."""
    of_a_start(trial)
    whole(trial)
    if trial.kind != "dpo":
        raise Untested("the trainer does not tell its reference's log-probabilities")
    if getattr(trial.trainer, "ref_model", None) is None and not getattr(
        trial.model, "peft_config", None
    ):
        raise Untested("the reference is no model but numbers computed beforehand")
    batch = batches(trial)[0]
    with quiet(trial):
        before = reference_of(trial, batch)
        if float((reference_of(trial, batch) - before).abs().max()) / tokens(batch) > tolerance(
            trial
        ):
            raise Untested("the reference is not the same twice")
        with nudged(list(some(trial.model).values()), 1.0):
            after = reference_of(trial, batch)
    moved = float((after - before).abs().max()) / tokens(batch)
    return Measured(
        moved, tolerance(trial), "change of the reference's log-probabilities, in nats a token"
    )
