"""What a law is given (`Trial`) and what it gives back (`Measured`), or why it could not be tested (`Untested`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch


class Untested(Exception):
    """The law can't be tested on this trial; the message says why, in a clause without full stop."""


@dataclass
class Trial:
    """What a law is tested on."""

    model: torch.nn.Module
    """Unwrapped, on its device, as the trainer has it"""
    batches: list[dict[str, Any]]
    """Tensors of the real collator, on the model's device"""
    rows: list[list[Any]]
    """The rows of each batch, as the collator was given them"""
    trainer: Any = None
    """A transformers.Trainer; None in a loop of the user's own"""
    collate: Any = None
    """The collator: rows -> batch"""
    tokenizer: Any = None
    loss: Any = None
    """(model, inputs) -> loss tensor of one micro-batch, as this trainer computes it"""
    kind: str = "sft"
    """sft, dpo, kto, orpo, reward, loop"""
    optimizer: Any = None
    """What has the `param_groups` of a loop's optimizers, where they were seen; a trainer has its own"""


@dataclass
class Measured:
    """How far a law is from holding."""

    value: float
    """The largest difference, as `unit` says; nan is a difference"""
    tolerance: float
    """Largest value that the dtype explains"""
    unit: str
    """What was compared, as in `largest relative difference of logits`"""
    evidence: dict[str, Any] = field(default_factory=dict)
    """JSON: names, positions, figures"""
