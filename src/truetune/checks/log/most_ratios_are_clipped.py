"""The clip holds back so many tokens that the policy hardly learns from its answers.

## What it does
Reads the share of tokens whose ratio was clipped: `clip_ratio/region_mean` (TRL), `actor/pg_clipfrac` (verl), or was
masked for its size: `masked_fraction/mean` (prime-rl). It warns if the median of the last fifth is above 0.3. TRL's
CISPO and GSPO clip at other ranges and are judged from 0.6 on.

## Why it is bad
A clipped token has no gradient. Shares of a hundredth are normal; a third says that the policy is far from the one that
sampled: too many updates on one batch, too high a learning rate, or a sampler with other weights. Ratios should be 1 at
the first update of a batch, so a share that is high from the first step on is a mismatch and no drift.

## Example
```yaml
curve:
  reward: {from: 0.3, to: 0.25, steps: 60, noise: 0.01}
  clip_ratio/region_mean: {values: [0.05, 0.3, 0.45, 0.5], steps: 60, noise: 0.01}
```

## Use instead
```yaml
curve:
  reward: {from: 0.3, to: 0.6, steps: 60, noise: 0.01}
  clip_ratio/region_mean: {values: [0.002, 0.005, 0.008], steps: 60, noise: 0.0005}
```

## Fix safety
Fewer updates per batch (`num_iterations: 1`, larger mini-batches) are safe and use more generation per update. A wider
clip lets the same steps through and may end in a collapse.

## References
- XueZeyue/DanceGRPO#17 (ratios of 0.7 before the first update, the reward falls), verl-project/verl#2775 (30 % with
  GSPO, 0.03 % with GRPO), huggingface/trl#3120
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.log.evidence.curves_of_reward_training import (
    CLIPPED_SHARES,
    ends_of_curve,
    first_known_curve,
)
from truetune.checks.rule import LogRule
from truetune.logs.run_log import Curve

MIN_RECORDS = 10
# GRPO in verl: 0.03 % to 5 %; GSPO clips 10 to 30 % by its design (its paper, section 5.1).
MAX_CLIPPED, MAX_CLIPPED_BY_SEQUENCE = 0.3, 0.6
SEQUENCE_LEVEL = ("sequence", "gspo", "cispo")


class MostRatiosAreClipped(LogRule):
    code = "LOG182"
    fault = Fault.POLICY_MOVES_TOO_FAR
    symptoms = ("reward-does-not-rise", "nothing-is-learned")
    severity = "warning"
    kinds = ("reinforcement",)

    def unmet(self) -> Unmet | None:
        """Also unmet where no share of clipped tokens is logged."""
        if (unmet := super().unmet()) is not None:
            return unmet
        if self._clipped_curve()[1]:
            return None
        return Unmet(f"the log has no {MIN_RECORDS} records of the share of clipped tokens")

    def measurement_if_clean(self) -> str:
        """The share at both ends."""
        name, curve = self._clipped_curve()
        return "{} goes from {:.2%} to {:.2%}".format(name, *ends_of_curve(curve))

    def findings(self) -> Iterator[Finding]:
        """The finding on a large share of clipped tokens."""
        name, curve = self._clipped_curve()
        if self.subject.kind != "reinforcement" or not curve:
            return
        ends = ends_of_curve(curve)
        if ends.last <= self._limit():
            return
        from_the_start = ends.first > self._limit()
        yield self.finding(
            f"{ends.last:.0%} of the tokens are clipped at the end ({name}; {ends.first:.0%} at first): they give no"
            " gradient",
            "compare the sampler's log-probabilities with the trainer's at the first update: the ratio has to be 1"
            " there; check weights, temperature and padding of both"
            if from_the_start
            else "lower learning_rate, or take fewer updates per batch of answers (num_iterations: 1)",
            total=int(curve.step.size),
            figure=draw_curves(name, {name: curve}),
        )

    def _clipped_curve(self) -> tuple[str, Curve]:
        """The share of clipped tokens with its name."""
        return first_known_curve(self.subject, CLIPPED_SHARES, MIN_RECORDS)

    def _limit(self) -> float:
        """The share from which on it is too much: more with ratios of whole answers."""
        facts = self.subject.facts
        named = f"{facts.get('importance_sampling_level', '')} {facts.get('loss_type', '')}"
        by_sequence = any(word in named for word in SEQUENCE_LEVEL)
        return MAX_CLIPPED_BY_SEQUENCE if by_sequence else MAX_CLIPPED
