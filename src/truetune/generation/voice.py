"""Voice: which token is said next, and what the model thinks of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import LogitsProcessor

WIDTH = 1024
"""Likeliest tokens that are sorted for top_p, where they are enough"""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen."""

    temperature: float = 0.0
    """0: the likeliest"""
    top_p: float = 1.0
    seed: int = 0

    def draws(self, ids: Sequence[int], count: int) -> torch.Tensor:
        """(count,) in [0, 1): those of one prompt, whatever else is asked."""
        return torch.from_numpy(np.random.default_rng([self.seed % 2**63, *ids]).random(count))


class SamplingProcessor(LogitsProcessor):
    """Chooses the token of each row, and keeps its log-probability under the model itself (temperature 1, all tokens).

    `draws` is (rows, steps).
    """

    def __init__(self, manner: SamplingParams, draws: torch.Tensor) -> None:
        self.manner, self.draws = manner, draws
        self.thoughts: list[torch.Tensor] = []
        """(rows,) of each step, in nats"""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> Any:
        if self.manner.temperature:
            draw = self.draws[:, len(self.thoughts)].to(scores.device, torch.float32)
            chosen = draw_tokens(
                (scores / self.manner.temperature).softmax(-1), self.manner.top_p, draw[:, None]
            )
        else:
            chosen = scores.argmax(-1, keepdim=True)
        self.thoughts.append((scores.gather(-1, chosen) - scores.logsumexp(-1, keepdim=True))[:, 0])
        return (
            torch.full_like(scores, -torch.inf).scatter(-1, chosen, 0.0)
            if self.manner.temperature
            else scores
        )


def draw_tokens(chances: torch.Tensor, top_p: float, draw: torch.Tensor) -> torch.Tensor:
    """(rows, 1) ids, by the inverse of the distribution function of `chances` (rows, vocabulary), cut to the fewest
    likeliest that make `top_p`."""
    if top_p >= 1:
        order, kept = None, chances
    else:
        kept, order = chances.topk(min(WIDTH, chances.shape[-1]))
        if (kept.sum(-1) < top_p).any():
            kept, order = chances.sort(-1, descending=True)
        before = kept.cumsum(-1) - kept
        kept = kept.where(
            (before < top_p) | (torch.arange(kept.shape[-1], device=kept.device) == 0), 0.0
        )
    below = kept.cumsum(-1)
    at = torch.searchsorted(below, draw * below[:, -1:], right=True).clamp(max=kept.shape[-1] - 1)
    return at if order is None else order.gather(-1, at)
