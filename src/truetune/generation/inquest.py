"""Inquest: why a finished model answers as it does."""

from __future__ import annotations

from dataclasses import dataclass

from truetune.generation.looks import Watched


@dataclass(frozen=True)
class Inquest:
    """What is known about a model besides its answers."""

    watched: Watched
    """One look at the finished model"""
    base: Watched | None = None
    """The same prompts under its base, where they were asked"""
