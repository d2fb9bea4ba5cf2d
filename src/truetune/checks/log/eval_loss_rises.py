"""The evaluation loss rises again: the run continued past its best step.

## What it does
Takes the lowest `eval_loss` and reads all later ones. It warns if two or more follow, all are higher, the last by 5 %,
and their trend rises (the 95 % interval of the Theil-Sen slope is positive). If four or more follow, a last value that
is 2 % higher is reported as info. A run that keeps its best checkpoint (`best_model_checkpoint`), by this loss or by
another metric in the log, is not reported. If another evaluation metric (`eval_wer`, `eval_accuracy`, ...) improves by
1 % or more after that step, the two disagree: then it is info, and names both.

## Why it is bad
From that step on the model memorises its training rows and gets worse on others. The last checkpoint is used, not the
best one.

## Example
```yaml
curve:
  loss: {values: [2.0, 1.2, 0.7, 0.4, 0.2], steps: 100, noise: 0.02}
  eval_loss: {values: [1.9, 1.5, 1.45, 1.6, 1.9, 2.2], steps: 100, every: 10}
```

## Use instead
```yaml
curve:
  loss: {values: [2.0, 1.7, 1.6, 1.5, 1.45], steps: 100, noise: 0.02}
  eval_loss: {values: [1.9, 1.7, 1.6, 1.55, 1.5], steps: 100, every: 10}
```

## Fix safety
Train fewer epochs, or set `load_best_model_at_end=True` with `metric_for_best_model="eval_loss"`, which needs
evaluation and saving at the same steps. Answers can still get better while this loss rises, because it also measures
how sure the model is: compare answers too.

## References
- early stopping: Prechelt 1998, doi:10.1007/3-540-49430-8_3; slope: Sen 1968
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.rule import LogRule
from truetune.errors import format_name_list
from truetune.logs.metric_direction import metric_improving_after
from truetune.logs.robust_statistics import fit_robust_trend
from truetune.logs.run_log import Curve, RunLog

# Times the lowest evaluation loss. Chosen, not measured: half of these rises are within the noise of an evaluation on
# few rows, and at double, much is unlearned before anything is said.
MIN_RISE, MIN_LONG_RISE = 1.05, 1.02
MIN_LATER = 3
"""Evaluations from the best one on: the last one alone may be noise"""
LONG_RISE = 5
"""Evaluations from the best one on, of which even a small rise is none by chance"""


class EvalLossRises(LogRule):
    code = "LOG015"
    fault = Fault.MODEL_MEMORISES_ITS_ROWS
    symptoms = ("odd-metrics", "dpo-without-effect")
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    kinds = ("language", "preference")
    needs = ("eval_loss",)
    least = 3

    def measurement_if_clean(self) -> str:
        """The lowest evaluation loss with its step, the last one, and whether the best checkpoint
        was kept.
        """
        curve = self.subject.curve("eval_loss").finite()
        best = int(np.argmin(curve.value))
        return (
            f"eval_loss is lowest at {self.subject.unit_of_steps} {curve.step[best]:,.0f}"
            f" with {curve.value[best]:.4g} and"
            f" ends at {curve.value[-1]:.4g} ({curve.step.size:,} evaluations)"
            + ("; the best checkpoint was kept" if self._is_best_checkpoint_kept() else "")
        )

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        curve = log.curve("eval_loss").finite()
        if log.kind not in ("language", "preference") or curve.step.size < 3:
            return
        best = int(np.argmin(curve.value))
        lowest, last = float(curve.value[best]), float(curve.value[-1])
        later = Curve(curve.step[best:], curve.value[best:])
        if not _rises_to_the_end(later) or self._is_best_checkpoint_kept():
            return
        loss, step = log.curve("loss").finite(), float(curve.step[best])
        gap = (
            f"; the training loss there was {loss.at(step):.4g} and ends at {loss.value[-1]:.4g}"
            if loss
            else ""
        )
        other = metric_improving_after(log, step)
        yield self.finding(
            f"eval_loss is lowest at {_step_and_epoch_in_words(log, step)} with {lowest:.4g} and rises to"
            f" {last:.4g}" + (f", while {other} gets better" if other else ""),
            _remedy(log, step, other),
            severity="warning" if last >= MIN_RISE * lowest and not other else "info",
            evidence=(
                f"+{last / lowest - 1:.0%} over the last {later.step.size - 1:,} evaluations{gap}",
            ),
            figure=draw_curves(
                "loss and eval_loss", {"loss": loss, "eval_loss": curve}, {"best": step}
            ),
        )

    def _is_best_checkpoint_kept(self) -> bool:
        """Was the best checkpoint kept, by the value of a metric that the log holds?"""
        log, best = self.subject, self.subject.fact_as_number("best_metric")
        if not log.facts.get("best_model_checkpoint") or best is None:
            return False
        evaluated = (curve.value for name, curve in log.curves.items() if name.startswith("eval_"))
        return any(
            bool(np.isclose(values, best, rtol=1e-4, atol=1e-6).any()) for values in evaluated
        )


def _rises_to_the_end(later: Curve) -> bool:
    """Does an evaluation loss rise from its lowest value, the first of these, to the end?

    All that follow must lie above it, and the slope must be positive with its whole interval: one
    bad evaluation at the end is no rise.
    """
    lowest, last = float(later.value[0]), float(later.value[-1])
    if later.step.size < MIN_LATER or lowest <= 0 or later.value[1:].min() <= lowest:
        return False
    least = MIN_RISE if later.step.size < LONG_RISE else MIN_LONG_RISE
    return last >= least * lowest and fit_robust_trend(later).low > 0


def _step_and_epoch_in_words(log: RunLog, step: float) -> str:
    """A moment of a run in words: its step and epoch, or the epoch alone where the log counts no
    steps.
    """
    epoch = f"epoch {float(log.epoch_at(step)):.2g}" if log.epochs_at_end else ""
    if log.is_numbered:
        return epoch or f"record {step:,.0f} of the log"
    return f"step {step:,.0f}" + (f" ({epoch})" if epoch else "")


def _remedy(log: RunLog, step: float, other: str | None) -> str:
    """The remedy: the best step to stop at or to return to; by another metric, `other`, the run may
    be right to continue.
    """
    if other:
        return (
            "keep the checkpoint that is best by the metric you care about (metric_for_best_model);"
            " the loss also measures how sure the model is"
        )
    again = "train fewer epochs, or keep the best one (load_best_model_at_end=True)"
    if log.is_numbered:
        return f"use the checkpoint nearest to {_step_and_epoch_in_words(log, step)}, {again}"
    evaluated = log.curve("eval_loss").step
    near = float(np.median(np.diff(evaluated)))
    kept = [checkpoint for checkpoint in log.checkpoints if abs(checkpoint - step) <= near]
    if kept:
        return f"use checkpoint-{min(kept, key=lambda found: abs(found - step))}; next time {again}"
    if log.checkpoints:
        left = format_name_list([f"checkpoint-{found}" for found in log.checkpoints])
        return f"no checkpoint near step {step:,.0f} is left (there is {left}): to get one, {again}, and train again"
    return f"use the checkpoint nearest to step {step:,.0f}; next time {again}"
