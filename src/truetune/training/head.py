"""The loss of each supervised token: the model's own head, over the places that have a label and no others."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from truetune.render.rendering import IGNORED

EXTRA = ("labels", "sources", "loss_weights", "num_items_in_batch")
"""Of a batch, what the model is not given"""


class TokenLosses(NamedTuple):
    """One entry for each supervised token of a batch, in order."""

    losses: torch.Tensor
    """(k,) cross-entropy in nats"""
    weights: torch.Tensor | None
    """(k,) where the batch has loss_weights"""
    sources: torch.Tensor | None
    """(k,) uint8 values of Source, where the batch has them"""
    first: torch.Tensor
    """(k,) does an answer begin here?"""


def token_losses(model: Any, batch: dict[str, Any]) -> TokenLosses:
    """Run the model on a batch of (rows, tokens).

    Logits are made of the places alone whose next token is supervised (`logits_to_keep`): where prompts are long, that
    saves most of the head.
    """
    labels: torch.Tensor = batch["labels"]
    targets = labels[:, 1:]
    mask = targets != IGNORED
    columns = mask.any(0).nonzero()[:, 0]
    inputs = {name: value for name, value in batch.items() if name not in EXTRA}
    logits = model(**inputs | {"use_cache": False}, logits_to_keep=columns).logits
    kept = mask[:, columns]
    wanted = targets[:, columns][kept]
    losses = torch.nn.functional.cross_entropy(logits[kept].float(), wanted, reduction="none")
    before = labels[:, :-1] != IGNORED
    return TokenLosses(losses, _of(batch, "loss_weights", mask), _of(batch, "sources", mask), ~before[mask])


def _of(batch: dict[str, Any], name: str, mask: torch.Tensor) -> torch.Tensor | None:
    values: torch.Tensor | None = batch.get(name)
    return None if values is None else values[:, 1:][mask]
