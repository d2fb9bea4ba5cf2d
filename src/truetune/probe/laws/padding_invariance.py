"""Padding changes nothing: the logits of a row's own tokens are the same with more padding, on either side."""

from __future__ import annotations

from typing import Any

import torch

from truetune.probe.laws import Cost, Measured, Trial, Untested
from truetune.probe.laws.tolerance import difference, tolerance

COST: Cost = "quick"
AMOUNTS = (1, 7)
LONGEST = 256
"""Tokens of the row that is used"""


def measure(trial: Trial) -> Measured:
    """Logits of one row alone against the same row padded on the tokenizer's side."""
    if trial.tokenizer is None or trial.tokenizer.pad_token_id is None:
        raise Untested("there is no pad token")
    ids = _row(trial)
    alone = _logits(trial.model, ids, torch.ones_like(ids))
    worst: dict[str, float] = {}
    for amount in AMOUNTS:
        left = trial.tokenizer.padding_side == "left"
        padded, mask = (_pad(x, amount, value, left) for x, value in ((ids, trial.tokenizer.pad_token_id),
                                                                     (torch.ones_like(ids), 0)))  # fmt: skip
        logits = _logits(trial.model, padded, mask)
        kept = logits[:, amount:] if left else logits[:, : ids.shape[1]]
        worst[f"{amount} {trial.tokenizer.padding_side}"] = difference(alone, kept)
    return Measured(max(worst.values()), tolerance(trial.model), "relative difference of logits", {"by padding": worst})


def _row(trial: Trial) -> torch.Tensor:
    batch: dict[str, Any] = next((b for b in trial.batches if "input_ids" in b), {})
    if not batch:
        raise Untested("no batch has input_ids")
    ids: torch.Tensor = batch["input_ids"][0]
    return ids[batch["attention_mask"][0] != 0 if "attention_mask" in batch else slice(None)][None, :LONGEST]


def _pad(x: torch.Tensor, amount: int, value: int, left: bool) -> torch.Tensor:
    return torch.nn.functional.pad(x, (amount, 0) if left else (0, amount), value=value)


@torch.no_grad()
def _logits(model: torch.nn.Module, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    training = model.training
    model.eval()
    try:
        logits: torch.Tensor = model(input_ids=ids, attention_mask=mask).logits
        return logits
    finally:
        model.train(training)
