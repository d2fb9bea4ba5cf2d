"""Checkpoint: the files of one saved model or adapter."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder of weights."""

    folder: Path
