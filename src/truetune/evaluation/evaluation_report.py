"""What `truetune evaluate` gives: losses, stops and answers of a model on held-out rows, and what they are worth.

The report holds what was measured; the rules on evaluations have judged it already. The trade-off: tasks of lm-eval
stand beside the rest as they came, for no rule knows what a score of a task means.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from truetune.checks.reports import Report
from truetune.evaluation.average_answer_metrics import AnswerMetrics
from truetune.generation.evaluation_loss_and_score_types import EvaluationResults

if TYPE_CHECKING:
    from truetune.evaluation.run_lm_eval_and_compare_prompts import LmEvalResult


@dataclass(frozen=True, kw_only=True, repr=False)
class EvaluationReport(Report):
    """A model, measured."""

    name: str
    evaluated: EvaluationResults | None
    """None where only tasks were run"""
    confidence: float
    """Of the intervals of losses and stops"""
    metrics: AnswerMetrics | None = None
    """Of the answers; None where none were asked for"""
    tasks: LmEvalResult | None = None
    notes: tuple[str, ...] = ()
    """What was asked for and not done, and what a reader should know"""

    def is_incomplete(self) -> bool:
        """Was something that was asked for not judged, or was there nothing to judge? Tasks of
        lm-eval alone are enough: they judge by themselves, and no rule is about them.
        """
        # Without this, a run of tasks alone would end with the exit code of "nothing was judged".
        return bool(self.requested_not_judged()) or (self.tasks is None and super().is_incomplete())

    def more(self) -> dict[str, Any]:
        """What a JSON report of an evaluation has besides that of every report."""
        parts = {"rows": self.evaluated, "answers": self.metrics, "lm_eval": self.tasks}
        return {
            "evaluation": {
                "model": self.name,
                "confidence": self.confidence,
                **{name: part and _to_json_values(asdict(part)) for name, part in parts.items()},
                "notes": list(self.notes),
            }
        }


def _to_json_values(value: Any) -> Any:
    """The value in what JSON has: keys as text, tuples as lists, and NaN or infinity as null."""
    if isinstance(value, dict):
        return {str(name): _to_json_values(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json_values(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
