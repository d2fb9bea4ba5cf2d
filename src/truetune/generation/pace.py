"""Pace: what a token costs behind a short and behind a long text, and what decides it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GenerationSpeed:
    """Seconds a token of one greedy answer, generated with the settings that are saved with the model; on a CPU those
    that it computed."""

    short: float
    long: float
    lengths: tuple[int, int] = (8, 256)
    """Tokens before it"""
    cached: bool | None = None
    """Keys and values of earlier tokens are kept; None where it can't be told"""
    batch: int = 1
    """Prompts of the longer length that are answered together"""
    beams: int = 1
    """num_beams of generation_config.json"""
    device: str = "cpu"
    unused: str | None = None
    """A GPU of this machine that the model is not on"""

    @property
    def growth(self) -> float:
        """How many times as long the token behind the long text takes"""
        return self.long / self.short if self.short > 0 else 1.0
