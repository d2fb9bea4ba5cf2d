"""What `truetune evaluate` gives: losses, stops and answers of a model on held-out rows, and what they are worth."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from truetune.checks.reports import Report
from truetune.evaluation.metrics import Metrics
from truetune.generation.evaluation_results import EvaluationResults

if TYPE_CHECKING:
    from truetune.evaluation.lm_eval import LmEval


@dataclass(frozen=True, kw_only=True, repr=False)
class EvaluationReport(Report):
    """A model, measured."""

    name: str
    evaluated: EvaluationResults | None
    """None where only tasks were run"""
    confidence: float
    """Of the intervals of losses and stops"""
    metrics: Metrics | None = None
    """Of the answers; None where none were asked for"""
    tasks: LmEval | None = None
    notes: tuple[str, ...] = ()
    """What was asked for and not done, and what a reader should know"""

    def lacks(self) -> bool:
        """Tasks of lm-eval judge by themselves: no rule is about them."""
        return bool(self.missing()) or (self.tasks is None and super().lacks())

    def more(self) -> dict[str, Any]:
        parts = {"rows": self.evaluated, "answers": self.metrics, "lm_eval": self.tasks}
        return {
            "evaluation": {
                "model": self.name,
                "confidence": self.confidence,
                **{name: part and _plain(asdict(part)) for name, part in parts.items()},
                "notes": list(self.notes),
            }
        }


def _plain(value: Any) -> Any:
    """Of what JSON has; what is no number as null."""
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
