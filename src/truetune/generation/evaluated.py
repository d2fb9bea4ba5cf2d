"""Evaluated: the losses and scores of a finished model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Evaluated:
    """What was measured on held-out rows."""

    rows: int
