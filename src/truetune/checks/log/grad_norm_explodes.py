"""The gradient norm grows by orders of magnitude and stays there, or is not finite.

## What it does
Looks for the largest change of level in the logarithm of `grad_norm` (CUSUM). It warns if the level after it is ten
times that before, up to the last tenth of the run, and the Mann-Kendall test finds a rise (z > 3.3). Norms that are not
finite count if they are more than 5 % after the first twenty steps (before that, fp16 looks for its loss scale), or if
none of eight or more is finite. If the loss itself is not finite at these steps, `loss-not-finite` reports it. If no
norm is finite but the loss stays finite, the loss scaler of fp16 skipped every step and no weight changed: that is an
error. A learning rate that does not move is a consequence of it.

In trainings by rewards a higher level counts if it is above 1, the usual clipping norm, and the reward does not rise.
Norms that jump to 20 times the level around them and above 10 count from three records on, and 1 % of the run.

## Why it is bad
The weights move into a region where steps no longer help; the loss follows a little later. With clipping, every step is
shortened to almost nothing.

## Example
```yaml
curve:
  loss: {from: 2.0, to: 1.5, steps: 100, noise: 0.02}
  grad_norm: {values: [1, 1, 1, 40, 60, 80], steps: 100, noise: 0.1}
```

## Use instead
```yaml
curve:
  loss: {from: 1.5, to: 1.3, steps: 100, noise: 0.02}
  grad_norm: {values: [1, 1, 1.2, 1.5], steps: 100, noise: 0.1}
```

## Fix safety
Lower the learning rate, or lengthen the warm-up; both slow down learning. A lower clipping norm (`max_grad_norm`) only
hides the fault. Overflow in fp16 from the first step on has nothing to do with the learning rate: bf16 has the range of
float32.

## References
- unslothai/unsloth#5207; Pascanu et al. 2013, arXiv 1211.5063; prime-rl's questions and answers ("sustained spikes mean
  you're about to diverge")
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.log.draw_log_curves_for_reports import describe_steps, draw_curves
from truetune.checks.log.evidence.curves_of_reward_training import does_reward_rise
from truetune.checks.log.float16_use_and_overflow import float16_overflow_remedy
from truetune.checks.rule import LogRule
from truetune.logs.robust_statistics import (
    fit_robust_trend,
    medians_of_both_ends,
    rolling_median,
    strongest_level_shift,
)
from truetune.logs.run_log import Curve, Floats, RunLog

MIN_POINTS = 20
"""Records. Chosen by hand: a change of level is looked for in them, and a few high norms are no level"""
SCALING_STEPS = 20
"""First steps in which the loss scaler of fp16 halves its scale at each overflow: from 65,536 to 1 are 16"""
MAX_NOT_FINITE = 0.05
"""Share of the records: fp16 doubles its scale every 2,000 steps, and one overflow follows. Chosen, not measured"""
MIN_NEVER = 8
"""Records without one finite norm: a scale of fp16 that is still looked for has some"""
MOSTLY = 0.9
"""Share of such records whose loss is 0: a mean over no label, and no overflow"""
NO_LABELS = "transformers logs a loss of NaN as 0 (logging_nan_inf_filter): a mean over no label, or NaN weights"
TIMES = 10.0
"""Chosen, not measured: at 5, norms that follow a change of the data may fire; at 20, the loss has followed already"""
USUAL_CLIP = 1.0
"""Default of max_grad_norm in TRL, verl and prime-rl. Trainings by rewards begin with nearly no gradient where few
groups differ: a rise below this is a signal that comes up"""
MIN_SPIKE, TIMES_OF_SPIKE = 10.0, 20.0
"""Ten times the usual clipping norm, and a norm over the level around it. Chosen: norms of runs that learn stay below
twice their level in the benches' logs, and single batches of a small run are some times as large"""
MIN_SPIKES, MIN_SPIKE_SHARE = 3, 0.01
WINDOW = 25
"""Records around a norm whose median is the level: as loss-spikes has it"""


class GradNormExplodes(LogRule):
    code = "LOG013"
    fault = Fault.LOSS_UNSTABLE
    severity = "warning"
    since = "0.1.0"
    moot_where = (
        "loss-climbs-above-guessing",
        "loss-scale-collapses",
        "loss-or-gradient-exactly-zero",
    )
    needs = ("grad_norm",)
    least = MIN_POINTS

    def measurement_if_clean(self) -> str:
        """The gradient norm at first, at the end and at most, and how many are not finite."""
        norm = self.subject.curve("grad_norm")
        seen = norm.finite().value
        first, last = medians_of_both_ends(seen)
        return (
            f"the gradient norm is {first:.3g} at first and {last:.3g} at the end (medians),"
            f" {seen.max():.3g} at most; {norm.step.size - seen.size:,} of {norm.step.size:,} are"
            " not finite"
        )

    def findings(self) -> Iterator[Finding]:
        norm = self.subject.curve("grad_norm")
        yield from self._findings_on_non_finite_norms(norm)
        grown = list(self._findings_on_grown_norm(norm))
        yield from grown or self._findings_on_spikes_of_reward_training(norm)

    def _findings_on_non_finite_norms(self, norm: Curve) -> Iterator[Finding]:
        """Findings on norms that are not finite: in all records, or in too many after the first
        steps.
        """
        never = norm.step.size >= MIN_NEVER and not norm.finite()
        proof = _evidence_of_skipped_steps(self.subject) if never else ()
        if proof:
            yield self._finding_on_skipped_steps(norm, proof)
            return
        broken = ~np.isfinite(norm.value)
        if not never:
            broken &= norm.step >= SCALING_STEPS
            if norm.step.size < MIN_POINTS or broken.sum() <= MAX_NOT_FINITE * norm.step.size:
                return
        bad = norm.step[broken]
        if self._is_loss_not_finite_at(bad):
            # The gradient of such a loss is none either: loss-not-finite is about it, with the step that it began at.
            return
        has_no_labels = self._is_loss_zero_at(bad)
        yield self.finding(
            f"the gradient norm is not finite at {bad.size:,} of {norm.step.size:,} logged steps"
            + (", and the loss is 0 there" if has_no_labels else ""),
            "check the labels of the batches first ((labels != -100).sum()): if all are -100, the loss is a mean over"
            " no token (a response marker that is not found, answers beyond max_length), and no precision helps"
            if has_no_labels
            else "train in bf16 (bf16=True, fp16=False), or lower learning_rate",
            evidence=(describe_steps(bad), *((NO_LABELS,) if has_no_labels else ())),
            count=int(bad.size),
            total=int(norm.step.size),
            figure=draw_curves(
                "gradient norm", {"grad_norm": norm}, {"not finite": float(bad[0])}, log=True
            ),
        )

    def _is_loss_not_finite_at(self, steps: Floats) -> bool:
        """Is the loss itself no number at nearly all of these steps?"""
        loss = self.subject.curve("loss")
        there = loss.value[np.isin(loss.step, steps)]
        return there.size > 0 and float(np.mean(~np.isfinite(there))) >= MOSTLY

    def _is_loss_zero_at(self, steps: Floats) -> bool:
        """Is the loss exactly 0 at nearly all of these steps?"""
        loss = self.subject.curve("loss")
        there = loss.value[np.isin(loss.step, steps)]
        return there.size >= MIN_NEVER and float(np.mean(there == 0)) >= MOSTLY

    def _findings_on_grown_norm(self, norm: Curve) -> Iterator[Finding]:
        """The finding of a norm whose level becomes ten times the one before and stays there to the
        end.
        """
        positive = norm.finite()
        keep = positive.value > 0
        # Norms differ by factors, not by amounts: on a log scale their noise is even.
        logs = Curve(positive.step[keep], np.log10(positive.value[keep]))
        by_rewards = self.subject.kind == "reinforcement"
        if self.subject.kind not in ("language", "reinforcement") or logs.step.size < MIN_POINTS:
            return
        place = strongest_level_shift(logs.value, max(3, logs.step.size // 20))
        if place is None or fit_robust_trend(logs).z < 3.3:
            return
        before = 10**place.before
        after = 10 ** float(np.median(logs.value[-max(3, logs.step.size // 10) :]))
        if min(10**place.after, after) < TIMES * before:
            return
        # a training by rewards that learns may have larger gradients
        is_learning = does_reward_rise(self.subject) if by_rewards else self._loss_falls()
        if is_learning or (by_rewards and after < USUAL_CLIP):
            return
        step = float(logs.step[place.at])
        yield self.finding(
            f"the gradient norm grows from {before:.3g} to {after:.3g} at {self.subject.unit_of_steps} {step:,.0f} and"
            " stays there",
            "lower learning_rate or lengthen the warm-up (warmup_steps), and start again from a checkpoint before that"
            f" {self.subject.unit_of_steps}",
            figure=draw_curves("gradient norm", {"grad_norm": norm}, {"grows": step}, log=True),
        )

    def _loss_falls(self) -> bool:
        """Has the loss fallen to a fifth? Rows that are not learned yet have nearly all of the gradient then."""
        loss = self.subject.curve("loss").finite()
        return loss.step.size > 3 and bool(
            np.median(loss.value[-3:]) < 0.2 * np.median(loss.value[:3])
        )

    def _findings_on_spikes_of_reward_training(self, norm: Curve) -> Iterator[Finding]:
        """The finding on norms that leap again and again in a training by rewards, whose loss shows no spikes."""
        positive = norm.finite()
        keep = positive.value > 0
        steps, values = positive.step[keep], positive.value[keep]
        if self.subject.kind != "reinforcement" or values.size < MIN_POINTS:
            return
        level = rolling_median(values, WINDOW)
        spikes = np.flatnonzero((values > TIMES_OF_SPIKE * level) & (values > MIN_SPIKE))
        if spikes.size < max(MIN_SPIKES, MIN_SPIKE_SHARE * norm.step.size):
            return
        worst = int(spikes[np.argmax(values[spikes])])
        yield self.finding(
            f"the gradient norm jumps to {values[worst]:.3g} at {self.subject.unit_of_steps} {steps[worst]:,.0f}, and"
            f" to more than {TIMES_OF_SPIKE:g} times the level around it at {spikes.size:,} of {norm.step.size:,}"
            f" logged steps ({np.median(values):.3g} in the median): single batches outweigh the others",
            "look at the rewards, advantages and ratios of these batches; then lower learning_rate, clip gradients"
            " (max_grad_norm: 1.0 or less), and take fewer updates per batch of answers",
            evidence=(describe_steps(steps[spikes]),),
            count=int(spikes.size),
            total=int(norm.step.size),
            figure=draw_curves(
                "gradient norm", {"grad_norm": norm}, {"jumps": float(steps[worst])}, log=True
            ),
        )

    def _finding_on_skipped_steps(self, norm: Curve, proof: tuple[str, ...]) -> Finding:
        """The finding that no gradient was ever finite, and that the weights took none of them."""
        return self.finding(
            f"no optimizer step was made: the gradient norm is not finite at all {norm.step.size:,} logged"
            " steps, so each of them was skipped (overflow in float16)",
            f"{float16_overflow_remedy(self.subject)}: this model's"
            " activations exceed float16 (65,504), as with Gemma, T5 and others that were"
            " trained in bfloat16; another learning rate does not help",
            severity="error",
            evidence=(describe_steps(norm.step), *proof),
            count=int(norm.step.size),
            total=int(norm.step.size),
            figure=draw_curves("gradient norm", {"grad_norm": norm}, log=True),
        )


def _evidence_of_skipped_steps(log: RunLog) -> tuple[str, ...]:
    """Evidence that a loss scaler skipped each step; empty where nothing proves it.

    A step with NaN gradients makes all weights NaN, and then the loss too. A loss that stays finite
    and differs from record to record is of weights that took no such step.
    """
    loss, rate = log.curve("loss"), log.curve("learning_rate").finite()
    finite = loss.finite()
    if finite.step.size < MIN_NEVER or finite.step.size < loss.step.size:
        return ()
    if np.unique(finite.value).size < finite.step.size / 2 or finite.value.min() <= 0:
        return ()
    proof: tuple[str, ...] = (
        f"the loss stays finite ({finite.value.min():.4g} to {finite.value.max():.4g}): no weight"
        " changed by such a gradient, so the loss scaler skipped each step",
    )
    if rate.step.size >= MIN_NEVER and np.ptp(rate.value) == 0:
        proof = (
            *proof,
            f"the learning rate stays at {rate.value[0]:.3g}: the schedule advances only with steps"
            " that are made",
        )
    return proof
