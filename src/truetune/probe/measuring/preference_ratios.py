"""Reads the log-ratios of policy to reference that a trainer of preferences logs, and the reference's log-
probabilities.

Log-ratios are read from what the trainer logs (`rewards/chosen` over beta), so that its own way to compute them is
what is tested. The trade-off: a trainer that logs no rewards is untested.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from truetune.probe.compact_vocabulary_to_used_ids import vocab_map_of
from truetune.probe.measuring.law_input_and_result_types import Trial, Untested
from truetune.probe.measuring.trainer_gradients import (
    coarsest_dtype,
    collate_rows_on_device,
    loss_of,
    refuse_trainers_that_sample_answers,
    trainer_autocast,
)
from truetune.probe.shrink_config import SHRUNK_ATTRIBUTE

# Pairs that are compared. Chosen, not measured: each costs a pass through policy and reference.
MAX_PAIRS = 3
# Nats a token by which two computations may be apart. docs/laws.md has 0 for correct runs, 0.012 for the least fault.
TOLERANCES_NATS = {torch.float64: 1e-5, torch.float32: 1e-3}
# The same in 16 bits. Chosen, not measured.
TOLERANCE_16_BIT_NATS = 0.05


def log_probability_tolerance(trial: Trial) -> float:
    """The tolerance of a log-probability, in nats/token."""
    return TOLERANCES_NATS.get(coarsest_dtype(trial), TOLERANCE_16_BIT_NATS)


def require_start_with_reference(trial: Trial) -> None:
    """Raises Untested where this is no start of a run with a reference."""
    if trial.kind not in ("dpo", "kto") or trial.trainer is None:
        # GRPO has a reference as well: its rollouts say whether that is the start.
        refuse_trainers_that_sample_answers(trial)
        raise Untested("the trainer has no reference model")
    if getattr(getattr(trial.trainer, "state", None), "global_step", 0):
        raise Untested("the run continues from a later step")
    if getattr(trial.trainer, "reference_free", False):
        raise Untested("the loss is free of a reference")


def is_reference_precomputed(trial: Trial) -> bool:
    """Do the batches hold log-probabilities of the reference that were computed beforehand?"""
    return any("ref" in key and "logp" in key for key in trial.batches[0])


def refuse_precomputed_by_another_model(trial: Trial) -> None:
    """Raises Untested where what was computed beforehand is of another model than this one: a miniature that took the
    model's place after it, or whose vocabulary was cut since."""
    config = getattr(trial.model, "config", None)
    if is_reference_precomputed(trial) and (
        vocab_map_of(trial.model) is not None or getattr(config, SHRUNK_ATTRIBUTE, False)
    ):
        raise Untested(
            "the reference's log-probabilities were computed before the miniature was made as it is"
        )


def batches_of_preference_pairs(trial: Trial) -> list[dict[str, Any]]:
    """Pair batches: those of one pair each for DPO; as they are where the loss needs several rows."""
    if trial.kind != "dpo":
        return trial.batches[:MAX_PAIRS]
    rows = [row for batch in trial.rows for row in batch][:MAX_PAIRS]
    return [collate_rows_on_device(trial, [row]) for row in rows]


def loss_and_log_ratios_by_side(
    trial: Trial, batch: dict[str, Any]
) -> tuple[float, dict[str, float]]:
    """The loss of a batch, and the mean log-ratio of policy to reference by side, in nats a row, as the trainer logs
    it. Raises Untested where it logs none."""
    # Only what this pass has added counts: earlier values are of other batches.
    before = {id(values): len(values) for _, values in _lists_of_metrics_to_log(trial.trainer)}
    with torch.no_grad():
        loss = float(loss_of(trial, batch))
    beta = float(getattr(trial.trainer, "beta", 0) or 0)
    ratios = {
        key.rpartition("/")[2]: float(values[-1]) / beta
        for key, values in _lists_of_metrics_to_log(trial.trainer)
        if beta
        and "rewards/" in key
        and key.endswith(("chosen", "rejected"))
        and len(values) > before.get(id(values), 0)
    }
    if not ratios:
        raise Untested("the trainer logs no rewards")
    return loss, ratios


def _lists_of_metrics_to_log(trainer: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yield the lists to which a trainer adds what it will log, by their name."""
    # TRL's names for them, of newer and of older releases.
    for name in ("_metrics", "_stored_metrics"):
        for metrics in dict(getattr(trainer, name, None) or {}).values():
            yield from metrics.items() if isinstance(metrics, Mapping) else ()


def fewest_supervised_tokens(batch: dict[str, Any]) -> int:
    """Supervised tokens of the line that has the fewest."""
    counts = [
        value
        for key, value in batch.items()
        if key.endswith("completion_mask") and isinstance(value, torch.Tensor)
    ]
    counts += [
        value != -100
        for key, value in batch.items()
        if key.endswith("labels") and isinstance(value, torch.Tensor)
    ]
    return max(1, min((int((mask != 0).sum(-1).min()) for mask in counts), default=1))


def log_probabilities_by_live_reference(trial: Trial, batch: dict[str, Any]) -> torch.Tensor:
    """Log-probabilities of the answers by the live reference, chosen before rejected. Raises Untested."""
    compute = getattr(trial.trainer, "compute_ref_log_probs", None)
    if compute is None:
        raise Untested("the trainer does not tell its reference's log-probabilities")
    model = getattr(trial.trainer, "ref_model", None) or trial.model
    stored = (
        (model, dict(batch)) if len(inspect.signature(compute).parameters) > 1 else (dict(batch),)
    )
    with trainer_autocast(trial), torch.no_grad():
        computed = compute(*stored)
    return (
        torch.cat([side.float() for side in computed])
        if isinstance(computed, tuple)
        else computed.float()
    )
