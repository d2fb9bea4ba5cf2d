"""Steps have a loss or gradient of exactly 0.0: a hidden NaN, or a batch without labels.

## What it does
Looks for values of `loss` and `grad_norm` that are exactly 0.0 while the losses around them are above 0.05. A mean of
logarithms is never exactly 0 there, nor is a gradient. (A preference loss can be: there only gradients count, at
margins below 5.)

If every loss is 0.0 and no gradient norm is finite, the output above the records tells whether it is float16: fp16 in
the command or the banner, a model that overflows in it, a learning rate that never leaves 0. If the loss is 0.0 from
some step to the end, and no norm is finite there, the weights themselves are NaN since then.

## Why it is bad
A batch without any label has the loss 0 / 0. Trainers log 0 or the last mean instead (`logging_nan_inf_filter`), so the
curve continues although these steps taught nothing. Means over several steps hide it even better: the loss only looks
lower, and only the gradient norm is 0. The log looks the same if activations overflow in float16: then no step is made,
whatever the labels are.

## Example
```yaml
log:
  - {step: 1, loss: 5.82, grad_norm: 1.9}
  - {step: 2, loss: 5.63, grad_norm: 1.7}
  - {step: 3, loss: 0.0, grad_norm: 0.0}
  - {step: 4, loss: 0.0, grad_norm: 0.0}
  - {step: 5, loss: 5.40, grad_norm: 1.8}
```

## Use instead
```yaml
log:
  - {step: 1, loss: 5.82, grad_norm: 1.9}
  - {step: 2, loss: 5.63, grad_norm: 1.7}
  - {step: 3, loss: 5.55, grad_norm: 1.8}
  - {step: 4, loss: 5.48, grad_norm: 1.6}
  - {step: 5, loss: 5.40, grad_norm: 1.8}
```

## Fix safety
`truetune check` on the data names the rows without a label. Remove them, or raise the length limit that cuts off their
answers. `logging_nan_inf_filter=False` only shows the NaN.

## References
- huggingface/trl#6702, huggingface/trl#6771, huggingface/transformers#13619
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.log.draw_log_curves_for_reports import describe_steps, draw_curves
from truetune.checks.log.float16_use_and_overflow import (
    family_overflowing_in_float16,
    float16_overflow_evidence,
    float16_overflow_remedy,
)
from truetune.checks.log.restart_advice import advise_restart
from truetune.checks.rule import LogRule
from truetune.logs.console.read_console_output import LABELS_MASKED, MARKER_TOKENS
from truetune.logs.robust_statistics import is_falling
from truetune.logs.run_log import Curve, Floats
from truetune.settings.run_spec import Severity

ALIVE = 0.05
"""Losses above it are no rounded zeros."""
MOVING = 0.5
"""Share of the logged steps at which the rate is another than before: a constant schedule has none, and a scaler that
skips each step repeats one rate"""
DECIDED = 5.0
"""Reward margin from which a preference loss and its gradient may round to 0"""


class ZeroSteps(NamedTuple):
    """Steps at which a loss or a gradient norm is exactly 0 that should not be."""

    of_loss: Floats
    of_norm: Floats
    """Of the gradient norm"""
    at_every_step: bool
    """Every loss of the run is 0"""

    @property
    def steps_with_zero_loss_or_norm(self) -> Floats:
        """Steps of either, in order: those with a loss of 0 and those with a gradient norm of 0."""
        return self.of_loss if self.at_every_step else np.union1d(self.of_loss, self.of_norm)


class LossOrGradientExactlyZero(LogRule):
    code = "LOG003"
    fault = Fault.LOSS_OR_WEIGHTS_NOT_FINITE
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    moot_where = ("loss-climbs-above-guessing",)
    kinds = ("language", "preference", "reward")
    needs = ("loss",)

    def measurement_if_clean(self) -> str:
        """How many losses and gradient norms are exactly 0."""
        counts = []
        for name in ("loss", "grad_norm"):
            value = self.subject.curve(name).finite().value
            if value.size:
                counts.append(f"{int((value == 0).sum()):,} of {value.size:,} records of {name}")
        return f"exactly 0: {' and '.join(counts)}"

    def findings(self) -> Iterator[Finding]:
        loss = self.subject.curve("loss").finite()
        if self.subject.kind == "reinforcement" or not loss:
            return
        zeros = self._find_zero_steps(loss)
        if zeros.at_every_step and self._says_that_no_row_has_a_label():
            return  # fault-named-in-the-output says it, and why
        if zeros.steps_with_zero_loss_or_norm.size:
            yield self._finding(loss, zeros)

    def _says_that_no_row_has_a_label(self) -> bool:
        """Does the output hold the warning on rows that are ignored?"""
        output = self.subject.output
        names = {notice.message.name for notice in output.notices} if output else set()
        return not names.isdisjoint((LABELS_MASKED, MARKER_TOKENS))

    def _find_zero_steps(self, loss: Curve) -> ZeroSteps:
        """The steps at which loss or gradient norm are exactly 0, though the run learns around
        them.
        """
        is_language = self.subject.kind == "language"
        if is_language and not np.any(loss.value) and loss.step.size > 1:
            return ZeroSteps(loss.step, np.zeros(0), at_every_step=True)
        around = Curve(loss.step, _smaller_neighbouring_loss(loss))
        of_loss = loss.step[(loss.value == 0) & (around.value > ALIVE) & is_language]
        return ZeroSteps(of_loss, self._steps_with_zero_norm(loss, around), at_every_step=False)

    def _steps_with_zero_norm(self, loss: Curve, around: Curve) -> Floats:
        """The steps whose gradient norm is 0 while the loss around them is not.

        A norm that is 0 in every record was perhaps not measured at all. It counts only where each record stands for
        several steps of a loss that falls.
        """
        norm = self.subject.curve("grad_norm").finite()
        if not np.any(norm.value):
            in_windows = loss.step.size > 1 and float(np.median(np.diff(loss.step))) > 1
            if not in_windows or not is_falling(loss):
                return np.zeros(0)
        is_still = (
            (norm.value == 0)
            & (around.at(norm.step) > ALIVE)
            & ~self._are_preferences_decided(norm.step)
        )
        still: Floats = norm.step[is_still]
        return still

    def _finding(self, loss: Curve, zeros: ZeroSteps) -> Finding:
        """The finding of zeros: what they are and the remedy, by whether the run ended in NaN and
        whether norms were measured.
        """
        norm = self.subject.curve("grad_norm").finite()
        is_measured = bool(np.any(norm.value))
        by_loss = bool(zeros.of_loss.size)
        some_norms = 1 < zeros.of_norm.size < norm.step.size
        severity: Severity = "warning" if is_measured else "info"
        evidence = [f"loss 0.0 at {describe_steps(zeros.of_loss)}" if by_loss else "no loss is 0.0"]
        if zeros.of_norm.size:
            doubt = "" if is_measured else ": perhaps it was not measured"
            evidence.append(f"gradient norm 0.0 at {describe_steps(zeros.of_norm)}{doubt}")
        ends = self._ends_in_nan(loss, zeros)
        overflow: tuple[str, ...] = ()
        if ends or self._are_all_losses_zero_and_norms_not_finite(zeros):
            overflow = tuple(float16_overflow_evidence(self.subject))
        return self.finding(
            f"the {'loss' if by_loss else 'gradient norm'} is exactly 0.0 at"
            f" {zeros.steps_with_zero_loss_or_norm.size:,} of"
            f" {loss.step.size:,} logged steps"
            + self._explain_zeros(zeros, ends=ends, is_overflow=bool(overflow)),
            self._remedy_of_ruined_weights(zeros, is_overflow=bool(overflow))
            if ends
            else self._remedy(zeros, is_overflow=bool(overflow)),
            severity="error" if by_loss or some_norms else severity,
            evidence=[*evidence, *overflow],
            count=int(zeros.steps_with_zero_loss_or_norm.size),
            total=int(loss.step.size),
            figure=draw_curves(
                "loss and gradient norm",
                {"loss": loss, "grad_norm": norm},
                {"first at": float(zeros.steps_with_zero_loss_or_norm[0])},
            ),
        )

    def _are_all_losses_zero_and_norms_not_finite(self, zeros: ZeroSteps) -> bool:
        """Is every loss 0 and no gradient norm a number?"""
        norm = self.subject.curve("grad_norm")
        return zeros.at_every_step and norm.step.size > 1 and not norm.finite()

    def _ends_in_nan(self, loss: Curve, zeros: ZeroSteps) -> bool:
        """Is every loss 0 from some step on, to the end, and no gradient norm a number there?"""
        norm = self.subject.curve("grad_norm")
        if zeros.at_every_step or zeros.of_loss.size < 2 or not norm:
            return False
        first = zeros.of_loss[0]
        rest = norm.value[norm.step >= first]
        is_to_the_end = bool(np.all(loss.value[loss.step >= first] == 0))
        return is_to_the_end and rest.size > 1 and not np.any(np.isfinite(rest))

    def _remedy_of_ruined_weights(self, zeros: ZeroSteps, *, is_overflow: bool) -> str:
        """What to do where one step made the weights NaN, and all later ones learned nothing."""
        again = advise_restart(
            self.subject, self._first_step_of_nonfinite_norms_or_zero_loss(zeros)
        )
        if is_overflow:
            return f"{float16_overflow_remedy(self.subject)}; {again}"
        is_brain = self.subject.facts.get("bf16") is True
        precision = "" if is_brain else " in bf16 (or float32) if it was float16,"
        return (
            f"{again};{precision} with a lower learning_rate{self._advice_on_clipping()}; check whether the batch"
            " right before had no label (`truetune check DATA -t TOKENIZER`)"
        )

    def _first_step_of_nonfinite_norms_or_zero_loss(self, zeros: ZeroSteps) -> float:
        """The first step from which on no gradient norm is a number, or the first loss of 0 where that comes before."""
        norm = self.subject.curve("grad_norm")
        finite = norm.step[np.isfinite(norm.value)]
        lost = norm.step[norm.step > finite[-1]] if finite.size else norm.step
        return float(min(lost[0], zeros.of_loss[0])) if lost.size else float(zeros.of_loss[0])

    def _advice_on_clipping(self) -> str:
        """The advice to clip gradients, where they are not clipped: transformers clips at 1.0
        unless it is told.
        """
        limit = self.subject.fact_as_number("max_grad_norm")
        if limit is None and self.subject.format == "transformers":
            return ""
        return "" if limit is not None and 0 < limit <= 1 else " or max_grad_norm=1.0"

    def _explain_zeros(self, zeros: ZeroSteps, *, ends: bool, is_overflow: bool) -> str:
        """What the zeros are. Only a model that is known to overflow excludes rows without a label."""
        if ends:
            return (
                f", from step {zeros.of_loss[0]:,.0f} to the end, and no gradient norm is finite there: each is a"
                " NaN, the weights are ruined, and nothing more is learned"
            )
        if not zeros.at_every_step:
            return ", in a run that otherwise learns"
        if not is_overflow:
            return ""
        family = family_overflowing_in_float16(self.subject)
        why = f"{family} overflows in float16" if family else "most likely caused by float16"
        return f": each is a NaN, {why}"

    def _remedy(self, zeros: ZeroSteps, *, is_overflow: bool) -> str:
        """The remedy: a wrong dtype first where the log shows it, or where labels can't tell it
        from one.
        """
        labels = (
            "find the rows without a label (`truetune check DATA -t TOKENIZER`) and remove them, or raise the length"
            " limit that cuts off their answers"
        )
        if is_overflow:
            return (
                f"{float16_overflow_remedy(self.subject)}; another learning rate does not help. If nothing is"
                f" float16: {labels}"
            )
        norms = self.subject.curve("grad_norm").finite()
        no_gradient = zeros.at_every_step and bool(norms) and not np.any(norms.value)
        if no_gradient or (
            self._are_all_losses_zero_and_norms_not_finite(zeros) and self._does_schedule_advance()
        ):
            # A scaler of float16 that skips every step keeps the schedule where it is.
            return (
                "no row has a label, from the first step on: compare the response marker, or the template, with"
                f" what this model's template writes, and the longest prompt with max_length; {labels}"
            )
        if self._are_all_losses_zero_and_norms_not_finite(zeros):
            return f"if it is trained in float16, {float16_overflow_remedy(self.subject)}; otherwise {labels}"
        return labels

    def _does_schedule_advance(self) -> bool:
        """Does the schedule advance at most of the logged steps?"""
        rate = self.subject.curve("learning_rate").finite().value
        return rate.size > 2 and float(np.mean(np.diff(rate) != 0)) > MOVING

    def _are_preferences_decided(self, step: Floats) -> NDArray[np.bool_]:
        """(points,) whether preferences are so clear at these steps that their loss vanishes."""
        margins = self.subject.curve("rewards/margins").finite()
        return np.abs(margins.at(step)) > DECIDED if margins else np.zeros(step.size, dtype=bool)


def _smaller_neighbouring_loss(loss: Curve) -> Floats:
    """(points,) the smaller of the nearest losses on both sides that are not 0."""
    (live,) = np.nonzero(loss.value)
    if not live.size:
        return np.zeros(loss.value.size)
    place = np.searchsorted(live, np.arange(loss.value.size))
    after = loss.value[live[np.minimum(place, live.size - 1)]]
    before = loss.value[live[np.maximum(place - 1, 0)]]
    made: Floats = np.minimum(before, after)
    return made
