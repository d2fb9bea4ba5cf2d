"""Turns dropout off in a model, for trainings that compare log-probabilities of two passes."""

from __future__ import annotations

import torch


def turn_off_all_dropout(model: torch.nn.Module) -> None:
    """Turn dropout off, also where a module keeps it as a number, which TRL's disable_dropout
    leaves on.
    """
    for module in model.modules():
        for name, value in vars(module).items():
            # attention_dropout, hidden_dropout and so on are plain numbers in transformers, which
            # functional calls read.
            if "drop" in name and isinstance(value, float):
                setattr(module, name, 0.0)
