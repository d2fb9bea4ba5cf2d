"""Sums the losses of a run by the source of the tokens, on the device, and reads them when
something is logged.

A mean over all tokens hides that stop tokens, a few in a hundred, are not learned. The sums cost two small operations a
batch and no transfer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from truetune.generation.answer_samples import StepLosses
from truetune.render.rendering import Source

# Counted again beside its source: it is decided by the prompt alone, and where labels are shifted
# it is the first to stay high.
FIRST_TOKEN = "first token"
"""The first supervised token of each answer"""
LOSS_NAMES = (*(source.label for source in Source), FIRST_TOKEN)
LOSS_PREFIX = "loss/"
TRAINER_LOSS = "all"
"""The trainer's own loss, where none by source is logged"""
REWARDS_PREFIX = "rewards/"
"""Of the names that a trainer on preferences logs"""


class SourceLosses:
    """Sums and counts of losses by source since they were last taken; nothing is sent to the host
    before.
    """

    def __init__(self) -> None:
        self.sums: torch.Tensor | None = None

    def add(self, losses: torch.Tensor, sources: torch.Tensor, first: torch.Tensor) -> None:
        """Add the losses of a batch.

        Args:
            losses: (k,) of its supervised tokens, in nats.
            sources: (k,) uint8 values of Source.
            first: (k,) whether an answer begins with the token.
        """
        kinds = torch.arange(len(Source), device=losses.device)
        member = torch.cat([sources[:, None] == kinds, first[:, None].bool()], dim=1)
        # where and not a product: a loss of inf times 0 would be nan in every source.
        parts = torch.where(member, losses.detach().float()[:, None], 0.0)
        # On the device and without .item(): reading one number a step would make the GPU wait for
        # Python at each.
        sums = torch.stack([parts.sum(0), member.sum(0, dtype=torch.float32)])
        self.sums = sums if self.sums is None else self.sums.to(sums.device) + sums

    def take(self) -> dict[str, float]:
        """Take `loss/stop token` and so on, the mean of each kind over all processes, where there were any, and start
        again.

        Every process must call it, after as many calls of `add`, at least one.
        """
        if self.sums is None:
            return {}
        sums, self.sums = self.sums, None
        # Sums are added and then divided: the mean of the processes' means would weigh them by
        # nothing.
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(sums)
        means, counts = (sums[0] / sums[1]).tolist(), sums[1].tolist()
        return {
            LOSS_PREFIX + name: mean
            for name, mean, count in zip(LOSS_NAMES, means, counts, strict=True)
            if count
        }

    def state(self) -> list[list[float]] | None:
        """The state to save in a checkpoint: the sums of this process; None before the first."""
        return None if self.sums is None else self.sums.tolist()

    def restore(self, sums: list[list[float]] | None) -> None:
        """Restore the sums that `state` gave."""
        self.sums = None if sums is None else torch.tensor(sums)

    def clear(self) -> None:
        """Forget the sums: of losses that were none of the training's."""
        self.sums = None


def losses_from_log_history(history: Iterable[Mapping[str, Any]]) -> tuple[StepLosses, ...]:
    """The losses in what a trainer has logged (`state.log_history`): by source, or else its own as `all`; none of a
    trainer on preferences, whose loss is one of pairs."""
    steps = []
    for record in history:
        # A loss of pairs (ln 2 at the start) is no cross-entropy, and rules about nats/token
        # would misread it.
        if any(name.startswith(REWARDS_PREFIX) for name in record):
            return ()
        losses = {
            name.removeprefix(LOSS_PREFIX): float(value)
            for name, value in record.items()
            if name.startswith(LOSS_PREFIX)
        }
        if not losses and "loss" in record:
            losses = {TRAINER_LOSS: float(record["loss"])}
        if losses:
            steps.append(StepLosses(int(record.get("step", 0)), losses))
    return tuple(steps)
