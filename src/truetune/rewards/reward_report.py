"""The report of `truetune reward`: the findings on a reward function, with what it was tried on and what it paid."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from truetune.checks.reports import Report
from truetune.generation.reward_trial import RewardTrial


@dataclass(frozen=True, kw_only=True, repr=False)
class RewardReport(Report):
    """What a reward function pays for, and what is wrong with it."""

    trial: RewardTrial

    def more(self) -> dict[str, Any]:
        """The trial, for the JSON."""
        return {"reward": asdict(self.trial)}
