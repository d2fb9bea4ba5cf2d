"""The sampler's log-probabilities drift away from the trainer's over the training.

## What it does
Reads the difference of the log-probabilities of sampler and trainer on the same tokens
(`sampling/sampling_logp_difference/mean` of TRL, `train_rollout_logprob_abs_diff` of slime,
`vllm_vs_local_logprob_diff_mean` of open-instruct). It warns if the difference triples from the first fifth of the run
to the last and reaches 0.03 per token, or jumps by that much from one level to another that lasts. Where the KL
divergence of both is logged instead (`mismatch_kl/mean` of prime-rl, `gen_kl_error` of NeMo-RL, verl's
`rollout_corr/kl`), it warns if that grows to five times as much and reaches 0.03. verl's difference of probabilities
(`training/rollout_probs_diff_mean`) has to triple and reach 0.02.
`sampled-answers-are-not-the-policys` is about differences that are large from the start.

## Why it is bad
A difference from other kernels and rounding is there at the first step and stays: 0.01 to 0.02 in bfloat16. One that
grows with the updates says that the updates do not reach the sampler: weights are not sent after a sleep, an adapter is
not loaded, some parameters have another name there. Answers are then those of an old policy, and the run collapses some
hundred steps later.

## Example
```yaml
curve:
  reward: {from: 0.3, to: 0.32, steps: 60, noise: 0.01}
  sampling/sampling_logp_difference/mean: {values: [0.012, 0.02, 0.05, 0.09], steps: 60, noise: 0.0005}
```

## Use instead
```yaml
curve:
  reward: {from: 0.3, to: 0.6, steps: 60, noise: 0.01}
  sampling/sampling_logp_difference/mean: {from: 0.012, to: 0.014, steps: 60, noise: 0.0005}
```

## Fix safety
Comparing one weight on both sides after a sync changes nothing in the run. Starting a new sampler from a saved
checkpoint is safe, and tells whether the sync is at fault: the difference is then small again.

## References
- huggingface/trl#5312 (0.015 to 0.2 with sleep mode), allenai/open-instruct#1473, vllm-project/vime#64 (0.011 to 0.036
  in 30 steps), verl-project/verl#5220 (an adapter that is never asked for), prime-rl's questions and answers ("if
  growing, drop max_async_level or LR")"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.log.evidence.curves_of_reward_training import (
    PROBABILITY_DIFFERENCES,
    SAMPLER_CORRELATION,
    SAMPLER_DIFFERENCES,
    SAMPLER_KLS,
    ends_of_curve,
    first_known_curve,
)
from truetune.checks.log.sampled_answers_are_not_the_policys import (
    largest_usual_difference,
)
from truetune.checks.rule import LogRule
from truetune.logs.robust_statistics import find_lasting_rises
from truetune.logs.run_log import Curve

MIN_RECORDS = 8
"""Four before a jump and four after it; TRL's report on sleep mode has ten steps"""
FIRST_RECORDS = 3
"""Before weights of the sampler can be old: it loads them when it starts"""
MIN_GROWTH, MIN_LAST = 3.0, 0.03
"""vime's flat run stays within a tenth; the drifting one triples"""
MIN_JUMP_SHARE = 0.5
"""Of the whole growth, from which on a rise within six records is told as a jump"""
MIN_KL_GROWTH, MIN_LAST_KL = 5.0, 0.03
"""A KL grows as the square of the difference: one that triples is nine times as much, as is a line that rises from 0.
NeMo-RL's own runs have to stay below 0.01; verl calls 0.1 significant"""
MIN_LAST_PROBABILITY = 0.02
"""Twice the 0.01 from which on verl's questions and answers say that the engine computes otherwise"""


def _limits_of_growth(name: str) -> tuple[float, float]:
    """(times that a difference has grown, what it is at the end), from which on it is a fault."""
    if name in SAMPLER_KLS:
        return MIN_KL_GROWTH, MIN_LAST_KL
    return MIN_GROWTH, MIN_LAST_PROBABILITY if name in PROBABILITY_DIFFERENCES else MIN_LAST


def _describe_jump(curve: Curve, first: float, last: float) -> str:
    """Where a difference jumps, as a part of a sentence; empty where it grows smoothly."""
    # The steepest part of a smooth growth is no jump; it may be the last records.
    highest = max(last, float(np.median(curve.value[-FIRST_RECORDS:])))
    for place, rise in find_lasting_rises(curve.value):
        if rise >= MIN_JUMP_SHARE * (highest - first):
            return f", with a jump at step {curve.step[place]:,.0f}"
    return ""


class SamplerDriftsFromTheTrainer(LogRule):
    code = "LOG188"
    fault = Fault.TRAINED_COMPLETIONS_NOT_AS_SAMPLED
    symptoms = ("reward-does-not-rise", "agent-training", "garbage-output", "nothing-is-learned")
    severity = "warning"
    kinds = ("reinforcement",)

    def unmet(self) -> Unmet | None:
        """Also unmet where no such difference is logged."""
        if (unmet := super().unmet()) is not None:
            return unmet
        if self._difference()[1]:
            return None
        return Unmet(
            f"the log has no {MIN_RECORDS} records of the difference between the sampler's and the trainer's"
            " log-probabilities, nor of their KL"
        )

    def measurement_if_clean(self) -> str:
        """The difference at both ends."""
        name, curve = self._difference()
        return "{} goes from {:.3g} to {:.3g}".format(name, *ends_of_curve(curve))

    def findings(self) -> Iterator[Finding]:
        """The finding on a difference that grows."""
        name, curve = self._difference()
        if self.subject.kind != "reinforcement" or not curve:
            return
        is_kl = name in SAMPLER_KLS
        growth, least = _limits_of_growth(name)
        # Large in most of the run, for a KL from the start: the other rule's.
        usual = float(np.median(curve.value))
        if usual >= largest_usual_difference(name) and (not is_kl or curve.value[0] >= least):
            return
        first, last = float(np.median(curve.value[:FIRST_RECORDS])), ends_of_curve(curve).last
        if last < max(least, growth * first):
            return
        where = _describe_jump(curve, first, last)
        figures = "probabilities" if name in PROBABILITY_DIFFERENCES else "log-probabilities"
        message = (
            f"the {figures} of sampler and trainer differ by {first:.2g} per token at first and"
            f" by {last:.2g} at the end{where}: the updates do not reach the sampler"
        )
        if is_kl:
            message = (
                f"the KL of sampler and trainer grows from {first:.2g} to {last:.2g} per token{where}: the"
                " answers are those of another policy than the one that is trained"
            )
        correlation = self.subject.curve(SAMPLER_CORRELATION).finite()
        yield self.finding(
            message,
            "compare the norm of one weight in the sampler with the trainer's after an update; look at sleep mode, at"
            " whether a LoRA adapter is loaded and asked for, and at the weights' names on both sides; then sample from"
            " newer weights (a smaller max_async_level) or lower learning_rate",
            evidence=[
                "the correlation of both goes from {:.2g} to {:.2g}".format(
                    *ends_of_curve(correlation)
                )
            ]
            if correlation
            else [],
            total=int(curve.step.size),
            figure=draw_curves(name, {name: curve}),
        )

    def _difference(self) -> tuple[str, Curve]:
        """The difference with its name."""
        return first_known_curve(self.subject, SAMPLER_DIFFERENCES, MIN_RECORDS)
