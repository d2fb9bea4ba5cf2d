"""The loss is NaN or infinite.

## What it does
Counts the values of `loss` and `eval_loss` that are NaN or infinite, and says whether any finite one follows.

## Why it is bad
Once the weights are NaN, every later step is lost. A NaN that passes comes from a batch without a label or from an
overflow in fp16: that step taught nothing.

## Example
```yaml
log:
  - {step: 1, loss: 2.1}
  - {step: 2, loss: .nan}
  - {step: 3, loss: .nan}
```

## Use instead
```yaml
log:
  - {step: 1, loss: 2.1}
  - {step: 2, loss: 2.0}
  - {step: 3, loss: 1.9}
```

## Fix safety
Restart from a checkpoint before the first NaN. If the first update made the weights NaN, there is none: Adam does that
to float16 weights, at any learning rate. Training in bf16 instead of fp16 changes results slightly; removing rows
without a label changes nothing that was learned.

## References
- huggingface/transformers#13758, huggingface/trl#6702
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import describe_steps, draw_curves
from truetune.checks.log.float16_use_and_overflow import (
    is_float16_run,
    precision_in_place_of_float16,
)
from truetune.checks.log.restart_advice import advise_restart
from truetune.checks.reasons_rules_cannot_judge import LOGGED_BY
from truetune.checks.rule import LogRule
from truetune.logs.canonical_metric_names import NAN_ITERATIONS_CURVE
from truetune.logs.run_log import Curve, Floats, RunLog

LOSSES = ("loss", "eval_loss")


class _NonFiniteCause(NamedTuple):
    """Why a loss is not finite, as its curve shows it."""

    evidence: str
    advice: str


FIRST_UPDATE = _NonFiniteCause(
    "the loss before the first update is finite and each after it is not: that update made the"
    " weights NaN",
    "load the weights as float32 or bfloat16 if they are float16: Adam's eps of 1e-8 is 0 in"
    " float16, so its first step divides by 0 (`truetune lint SCRIPT` checks it); then look"
    " for rows without a label, and for a learning rate without warm-up",
)
EVALUATION_ALONE = _NonFiniteCause(
    "the training losses are finite: the fault is in the evaluation's rows or its precision",
    "count the labels of each evaluation batch ((labels != -100).sum()): if prompts fill max_length, or the mask"
    " hides everything, none is left, and the mean over none is NaN. Raise max_length, or remove such rows. If you"
    " evaluate with fp16_full_eval=True, .half() or dtype=float16, use bfloat16 first (Gemma 2, Gemma 3 and T5"
    " overflow)",
)
NO_TRAINING = EVALUATION_ALONE._replace(
    evidence="the log has no training loss: the fault is in the evaluation's rows or its precision"
)


LABELS_FIRST = (
    "first find rows without a label ((labels != -100).sum() of each batch): if a limit cuts off the answer, none"
    " is left, and the mean over none is NaN; remove such rows, or raise max_length"
)
MIN_NAN_RECORDS = 3
MIN_CALM = 2
"""Records before the first such loss: one alone shows no rise"""
# Chosen, not measured: losses and norms of neighbouring records differ by less; runs that diverge pass both at once.
MAX_LOSS_RISE, MAX_NORM_RISE = 1.2, 3.0


class LossNotFinite(LogRule):
    code = "LOG004"
    fault = Fault.LOSS_OR_WEIGHTS_NOT_FINITE
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    moot_where = ("loss-scale-collapses", "loss-or-gradient-exactly-zero")

    def unmet(self) -> Unmet | None:
        """Unmet where the log has neither a loss nor an evaluation loss."""
        logged = any(self.subject.curve(name) for name in LOSSES)
        return None if logged else Unmet("the log has no loss and no eval_loss", LOGGED_BY["loss"])

    def measurement_if_clean(self) -> str:
        """The number of records of each loss, none of which is not finite."""
        counts = ((name, self.subject.curve(name).step.size) for name in LOSSES)
        return "not finite: " + " and ".join(
            f"0 of {count:,} records of {name}" for name, count in counts if count
        )

    def findings(self) -> Iterator[Finding]:
        for name in LOSSES:
            curve = self.subject.curve(name)
            bad = ~np.isfinite(curve.value)
            if not bad.any():
                continue
            first = float(curve.step[bad][0])
            stays = bool(bad[np.argmax(bad) :].all())
            count, total = int(bad.sum()), int(curve.step.size)
            known = self._cause_seen_in_curves(curve, name, first, stays=stays)
            unit = "evaluations" if name == "eval_loss" else "logged steps"
            places = np.flatnonzero(bad) + 1
            is_all = count == total
            yield self.finding(
                f"{name} is not finite at {count:,} of {total:,} {unit}"
                + (
                    f", every one from {self._describe_place(name, first, int(places[0]))} on"
                    if stays and not is_all
                    else ""
                ),
                known.advice if known is not None else _remedy(self.subject, first),
                evidence=(
                    self._describe_places(name, curve.step[bad], places),
                    *((known.evidence,) if known is not None else ()),
                    *(_evidence_of_last_checkpoint(self.subject, first) if name == "loss" else ()),
                ),
                count=count,
                total=total,
                # A curve without a number has nothing to draw.
                figure=None if is_all else draw_curves(name, {name: curve}, {"not finite": first}),
            )
        yield from self._findings_on_counted_iterations()

    def _findings_on_counted_iterations(self) -> Iterator[Finding]:
        """The finding on iterations that Megatron counts as NaN, and leaves out of the loss that it prints."""
        counted = self.subject.curve(NAN_ITERATIONS_CURVE).finite()
        bad = counted.value > 0
        # One batch may be broken; in three records it is more than that.
        if int(bad.sum()) < MIN_NAN_RECORDS:
            return
        yield self.finding(
            f"{counted.value.sum():,.0f} iterations had a loss that is not finite, in {int(bad.sum()):,} of"
            f" {counted.step.size:,} records (number of nan iterations): the printed loss leaves them out",
            f"{advise_restart(self.subject, float(counted.step[bad][0]))}; {LABELS_FIRST}",
            count=int(bad.sum()),
            total=int(counted.step.size),
        )

    def _describe_place(self, name: str, step: float, number: int) -> str:
        """Where a value stands, in words: its step, or which evaluation or record it is of a log
        that has no steps.
        """
        if not self.subject.is_numbered:
            return f"step {step:,.0f}"
        return f"evaluation {number:,}" if name == "eval_loss" else f"record {step:,.0f}"

    def _describe_places(self, name: str, steps: Floats, numbers: NDArray[np.intp]) -> str:
        """Where the values stand that are not finite, in one line."""
        if not self.subject.is_numbered:
            return describe_steps(steps)
        if name == "eval_loss":
            return describe_steps(numbers.tolist()).replace("step", "evaluation", 1)
        return describe_steps(steps).replace("step", "record", 1)

    def _cause_seen_in_curves(
        self, curve: Curve, name: str, first: float, *, stays: bool
    ) -> _NonFiniteCause | None:
        """Why the values are not finite, where the curves themselves say it."""
        if name == "eval_loss":
            return _cause_of_non_finite_evaluations(self.subject)
        if stays and _fails_at_the_first_update(curve):
            return FIRST_UPDATE
        return _batch_without_label_as_cause(self.subject, first)


def _remedy(log: RunLog, first: float) -> str:
    """The remedy for a loss that stopped being a number at step `first`."""
    is_brain = log.facts.get("bf16") is True or (
        log.output is not None and bool(log.output.settings.brain)
    )
    precision = "" if is_brain else f" or train in {precision_in_place_of_float16(log)}"
    return f"{advise_restart(log, first)}; lower the learning rate{precision}, and look for rows without a label"


def _batch_without_label_as_cause(log: RunLog, first: float) -> _NonFiniteCause | None:
    """A batch without a label, where nothing in the curves leads to a loss that is no number; None where they rise.

    A run that diverges shows it before: its loss or its gradient norm grows. float16 overflows without a sign.
    """
    loss = log.curve("loss").finite()
    before = loss.value[loss.step < first]
    norm = log.curve("grad_norm").finite()
    norms = norm.value[norm.step < first]
    if before.size < MIN_CALM or before[-1] > MAX_LOSS_RISE * before[0] or is_float16_run(log):
        return None
    if norms.size < MIN_CALM or norms[-1] > MAX_NORM_RISE * float(np.median(norms)):
        return None
    unit = log.unit_of_steps
    return _NonFiniteCause(
        f"nothing leads up to it: the loss goes from {before[0]:.4g} to {before[-1]:.4g} and the gradient norm from"
        f" {norms[0]:.3g} to {norms[-1]:.3g} up to {unit} {float(loss.step[loss.step < first][-1]):,.0f}",
        f"{advise_restart(log, first)}; {LABELS_FIRST}; then lower the learning rate, or train in"
        f" {precision_in_place_of_float16(log)} if it was in float16",
    )


def _evidence_of_last_checkpoint(log: RunLog, first: float) -> Iterator[str]:
    """Evidence: the last checkpoint before step `first`, where there is one."""
    older = [step for step in log.checkpoints if step < first]
    if older:
        yield f"the last checkpoint before it: checkpoint-{older[-1]}"


def _cause_of_non_finite_evaluations(log: RunLog) -> _NonFiniteCause | None:
    """Why no loss of the evaluation is finite, where each loss of the training is, or none is
    there.
    """
    training, evaluation = log.curve("loss"), log.curve("eval_loss")
    if np.isfinite(evaluation.value).any():
        return None
    if not training.value.size:
        return NO_TRAINING
    return EVALUATION_ALONE if np.isfinite(training.value).all() else None


def _fails_at_the_first_update(curve: Curve) -> bool:
    """Is the first step of all finite and the second not, in a log of each step? Counts begin at 0 or 1."""
    if curve.step.size < 2 or not np.isfinite(curve.value[0]) or np.isfinite(curve.value[1]):
        return False
    first, second = float(curve.step[0]), float(curve.step[1])
    return first <= 1 and second == first + 1
