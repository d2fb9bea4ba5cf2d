"""RunLog: the curves of one run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunLog:
    """What a run logged."""

    path: str
