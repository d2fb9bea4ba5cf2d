"""The checkpoint kept as the best is the worst by its own metric.

## What it does
Finds the metric whose value at `best_global_step` is `best_metric`, and checks whether that is the lowest or the
highest value of its curve. It fires if a loss, a perplexity or an error rate was kept at its highest, or an accuracy, a
reward or an overlap at its lowest. The metric's name says which direction is better; a name without a known direction
(just `score`) is not judged.

## Why it is bad
`load_best_model_at_end` loads the worst weights. The direction is guessed from the metric's name if `greater_is_better`
is not set, or it was set the wrong way round.

## Example
```yaml
log:
  - {step: 10, eval_loss: 1.9}
  - {step: 20, eval_loss: 1.5}
  - {step: 30, eval_loss: 1.3}
state: {best_metric: 1.9, best_global_step: 10, best_model_checkpoint: out/checkpoint-10}
```

## Use instead
```yaml
log:
  - {step: 10, eval_loss: 1.9}
  - {step: 20, eval_loss: 1.5}
  - {step: 30, eval_loss: 1.3}
state: {best_metric: 1.3, best_global_step: 30, best_model_checkpoint: out/checkpoint-30}
```

## Fix safety
Setting `greater_is_better` changes only which checkpoint is kept and loaded. The better checkpoint may be deleted
already (`save_total_limit`).

## References
- huggingface/transformers#31142, huggingface/transformers#40221, huggingface/trl#5811
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.rule import LogRule
from truetune.logs.metric_direction import lower_is_better
from truetune.logs.run_log import Curve, RunLog


class BestCheckpointIsWorst(LogRule):
    code = "LOG021"
    fault = Fault.WRONG_CHECKPOINT_CHOSEN
    symptoms = ("nothing-is-learned", "odd-metrics")
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        """Unmet where no best_metric is named, or no metric of a known direction was evaluated
        twice and has its value.
        """
        if self.subject.fact_as_number("best_metric") is None:
            return Unmet(
                "the log names no best_metric",
                "name the folder of the run, whose trainer_state.json does",
            )
        if not any(True for _ in self._metrics_equal_to_best_metric()):
            return Unmet(
                "no metric that was evaluated twice, and is better in a known direction, has that"
                " value"
            )
        return None

    def measurement_if_clean(self) -> str:
        """The value that was kept, beside the best and the worst of the evaluations."""
        name, curve, _, lower = next(self._metrics_equal_to_best_metric())
        best, worst = (np.min, np.max) if lower else (np.max, np.min)
        return (
            f"{name} was kept at {self.subject.fact_as_number('best_metric'):.4g}; of {curve.step.size:,}"
            f" evaluations the best is {best(curve.value):.4g}, the worst {worst(curve.value):.4g}"
        )

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        best = log.fact_as_number("best_metric") or 0.0
        for name, curve, here, lower in self._metrics_equal_to_best_metric():
            right = int(np.argmin(curve.value) if lower else np.argmax(curve.value))
            if not np.isclose(best, curve.value.max() if lower else curve.value.min(), rtol=1e-5):
                continue
            kept = float(curve.step[np.argmax(here)])
            yield self.finding(
                f"the checkpoint of step {kept:,.0f} was kept as the best with {name} {best:.4g}, but that is"
                f" the worst ({'highest' if lower else 'lowest'}) of {curve.step.size:,} evaluations",
                f"set greater_is_better={not lower}; {_advise_on_checkpoint(log, curve, right, lower=lower)}",
                figure=draw_curves(
                    name, {name: curve}, {"kept": kept, "best": float(curve.step[right])}
                ),
            )
            return

    def _metrics_equal_to_best_metric(self) -> Iterator[tuple[str, Curve, NDArray[np.bool_], bool]]:
        """Metrics with two evaluations or more that have the value of best_metric: the name, the
        curve, the places with that value, and whether a lower value is better.
        """
        log = self.subject
        best, step = log.fact_as_number("best_metric"), log.fact_as_number("best_global_step")
        if best is None:
            return
        for name, logged in log.curves.items():
            curve = logged.finite()
            if not name.startswith("eval_") or curve.step.size < 2 or np.ptp(curve.value) == 0:
                continue
            here = np.isclose(curve.value, best, rtol=1e-5, atol=1e-9)
            if step is not None:
                here &= curve.step == step
            lower = lower_is_better(name)
            if here.any() and lower is not None and not self._is_other_metric_configured(name):
                yield name, curve, here, lower

    def _is_other_metric_configured(self, name: str) -> bool:
        """Do the settings name another metric than this one for the best checkpoint?"""
        metric = str(self.subject.facts.get("metric_for_best_model") or "")
        return bool(metric) and metric.removeprefix("eval_") != name.removeprefix("eval_")


def _advise_on_checkpoint(log: RunLog, curve: Curve, right: int, *, lower: bool) -> str:
    """Advice which checkpoint to take: that of the best evaluation, or the best of those that are
    left.
    """
    best = f"the checkpoint of step {curve.step[right]:,.0f} ({curve.value[right]:.4g})"
    left = [place for place, step in enumerate(curve.step) if step in log.checkpoints]
    if right in left:
        return f"use {best}"
    if not left:
        return f"use {best} if it still exists"
    choose = min if lower else max
    kept = choose(left, key=lambda place: float(curve.value[place]))
    return f"{best} is not here; of those that are, use checkpoint-{curve.step[kept]:.0f} ({curve.value[kept]:.4g})"
