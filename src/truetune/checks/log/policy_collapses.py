"""The policy collapses: its answers lose their variety, or shrink to a few tokens.

## What it does
Compares the end of a run of GRPO, RLOO, PPO or verl with its start (medians of the first and the last fifth). It warns
if

- the entropy of the policy falls to a tenth of its first value and below 0.05 per token;
- the entropy rises to four times its first value and above 2 per token, or above 1 if the reward falls by a tenth;
- the mean length of the answers falls to a fifth and below 20 tokens.

## Why it is bad
A policy without entropy gives one answer to each prompt: its rewards are all equal, and nothing more is learned. A
policy with too much entropy writes garbage. If a reward is given for form or brevity, answers shrink to a few tokens:
the reward rises, but the task is lost.

## Example
```yaml
curve:
  reward: {from: 0.4, to: 0.6, steps: 60, noise: 0.02}
  entropy: {values: [0.5, 0.1, 0.01, 0.002, 0.001], steps: 60}
```

## Use instead
```yaml
curve:
  reward: {from: 0.4, to: 0.6, steps: 60, noise: 0.02}
  entropy: {from: 0.5, to: 0.3, steps: 60, noise: 0.01}
```

## Fix safety
First read answers from the start and from the end: if short answers are right, their length is not a fault. Use a
checkpoint from before the fall.

## References
- PRIME-RL/Entropy-Mechanism-of-RL#20, verl-project/verl#2738
- Cui et al. 2025, arXiv 2505.22617 (entropy collapse)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.rule import LogRule
from truetune.logs.grpo_learning_signal_and_cut_answers import mean_answer_length
from truetune.logs.run_log import EMPTY_CURVE, Curve

ENTROPY_NAMES = ("entropy", "actor/entropy", "actor/entropy_loss", "policy/entropy_avg")
MIN_RECORDS = 10
END_SHARE = 0.2
# Chosen, not measured: GRPO runs that learn end at a half to a third of their first entropy, some at a fifth.
MAX_ENTROPY_SHARE, MAX_ENTROPY = 0.1, 0.05
MIN_ENTROPY_RISE, MIN_HIGH_ENTROPY = 4.0, 2.0
MIN_HIGH_ENTROPY_OF_FALLING_REWARD, MIN_REWARD_FALL = 1.0, 0.1
"""Chosen, not measured: a wider upper clip (DAPO) raises the entropy of runs that learn, and their reward rises"""
MAX_LENGTH_SHARE, MAX_LENGTH = 0.2, 20.0


class Ends(NamedTuple):
    """The medians of the first and of the last records."""

    first: float
    last: float


class PolicyCollapses(LogRule):
    code = "LOG171"
    fault = Fault.POLICY_LOSES_VARIETY
    symptoms = ("reward-rises-model-is-worse", "garbage-output")
    severity = "warning"
    kinds = ("reinforcement",)

    def unmet(self) -> Unmet | None:
        """Also unmet where the log has neither entropy nor lengths, or few records of them."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if self._token_entropy_curve() or self._mean_answer_length_curve():
            return None
        return Unmet(
            f"the log has no {MIN_RECORDS} records of the policy's entropy or of the answers' length"
        )

    def measurement_if_clean(self) -> str:
        """Entropy and length at both ends."""
        figures = []
        if self._token_entropy_curve():
            figures.append(
                "the entropy goes from {:.3g} to {:.3g}".format(
                    *_first_and_last_fifth_medians(self._token_entropy_curve())
                )
            )
        if self._mean_answer_length_curve():
            figures.append(
                "the mean length from {:.0f} to {:.0f}".format(
                    *_first_and_last_fifth_medians(self._mean_answer_length_curve())
                )
            )
        return ", ".join(figures)

    def findings(self) -> Iterator[Finding]:
        if self.subject.kind != "reinforcement":
            return
        if self._token_entropy_curve():
            yield from self._findings_on_entropy(self._token_entropy_curve())
        if self._mean_answer_length_curve():
            yield from self._findings_on_shrinking_answers(self._mean_answer_length_curve())

    def _findings_on_entropy(self, curve: Curve) -> Iterator[Finding]:
        """The finding on an entropy that falls to nothing, or rises without end."""
        ends = _first_and_last_fifth_medians(curve)
        falls = ends.last < min(MAX_ENTROPY, MAX_ENTROPY_SHARE * ends.first)
        high = MIN_HIGH_ENTROPY_OF_FALLING_REWARD if self._reward_falls() else MIN_HIGH_ENTROPY
        rises = ends.last > max(high, MIN_ENTROPY_RISE * ends.first)
        if not falls and not rises:
            return
        effect = (
            "the policy gives one answer to each prompt, and nothing more is learned"
            if falls
            else "the policy spreads over all tokens, and its answers become garbage"
        )
        yield self.finding(
            f"the entropy of the policy goes from {ends.first:.3g} to {ends.last:.2g} per token: {effect}",
            "go back to a checkpoint before that; then lower learning_rate or num_iterations (updates per"
            " batch of answers), or raise the upper clip (epsilon_high)"
            if falls
            else "go back to a checkpoint before that; then lower learning_rate, and remove an entropy bonus",
            total=int(curve.step.size),
            figure=draw_curves("entropy", {"entropy": curve}),
        )

    def _reward_falls(self) -> bool:
        """Does the reward end a tenth below its beginning? False where it is not logged."""
        reward = self.subject.curve("reward").finite()
        if reward.step.size < MIN_RECORDS:
            return False
        ends = _first_and_last_fifth_medians(reward)
        return ends.first - ends.last > MIN_REWARD_FALL * abs(ends.first)

    def _findings_on_shrinking_answers(self, curve: Curve) -> Iterator[Finding]:
        """The finding on answers that shrink to a few tokens."""
        ends = _first_and_last_fifth_medians(curve)
        if ends.last >= min(MAX_LENGTH, MAX_LENGTH_SHARE * ends.first):
            return
        reward = self.subject.curve("reward").finite()
        evidence = []
        if reward.step.size >= MIN_RECORDS:
            evidence.append(
                "the reward goes from {:.3g} to {:.3g}".format(
                    *_first_and_last_fifth_medians(reward)
                )
            )
        yield self.finding(
            f"answers shrink from {ends.first:.0f} to {ends.last:.0f} tokens: the policy gets its reward without"
            " doing the task",
            "read the last answers; then change the reward so that form or brevity is not rewarded by itself, and"
            " an empty answer gets nothing",
            evidence=evidence,
            total=int(curve.step.size),
            figure=draw_curves("mean length of answers", {"length": curve}),
        )

    def _token_entropy_curve(self) -> Curve:
        """The entropy of the policy by token; empty where too few records are logged."""
        curves = (self.subject.curve(name).finite() for name in ENTROPY_NAMES)
        return next((one for one in curves if one.step.size >= MIN_RECORDS), EMPTY_CURVE)

    def _mean_answer_length_curve(self) -> Curve:
        """The mean length of the answers; empty where too few records are logged."""
        curve = mean_answer_length(self.subject)
        return curve if curve.step.size >= MIN_RECORDS else EMPTY_CURVE


def _first_and_last_fifth_medians(curve: Curve) -> Ends:
    """The medians of the first and of the last fifth of a curve."""
    size = max(1, int(END_SHARE * curve.value.size))
    return Ends(float(np.median(curve.value[:size])), float(np.median(curve.value[-size:])))
