"""The KL to the reference runs away: the policy leaves the model that it started from.

## What it does
Reads the KL divergence from the reference in trainings by rewards: `kl` per token (TRL, verl's `actor/kl_loss`), or
`objective/kl` per answer (PPO). It warns if the median of the last fifth is above 1 per token (100 per answer) and ten
times that of the first fifth; or three times the first records, if the reward does not rise with it; and also if a
single record is above 100 per token.

## Why it is bad
At a KL of 1 per token the policy writes texts that the reference would not have written: other languages, loops, noise
that a reward happens to pay. In reports all rewards fall together at the step where the KL jumps. A single huge value
is a token that the reference holds for impossible; its gradient outweighs the batch.

## Example
```yaml
curve:
  reward: {values: [0.2, 0.5, 0.6, 0.3, 0.1], steps: 60, noise: 0.02}
  kl: {values: [0.01, 0.05, 0.1, 2.0, 8.0], steps: 60, noise: 0.002}
```

## Use instead
```yaml
curve:
  reward: {from: 0.2, to: 0.6, steps: 60, noise: 0.02}
  kl: {from: 0.01, to: 0.2, steps: 60, noise: 0.002}
```

## Fix safety
Continue from a checkpoint before the jump. A lower learning rate is safe and slower. A larger `beta` also keeps the
policy from what it should learn.

## References
- modelscope/ms-swift#6550 (all rewards fall as the KL jumps at step 400), meta-pytorch/torchforge#664,
  aburkov/theLMbook#6
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.log.evidence.curves_of_reward_training import (
    does_reward_rise,
    ends_of_curve,
    first_known_curve,
)
from truetune.checks.rule import LogRule
from truetune.logs.run_log import Curve

KL_NAMES = ("kl", "objective/kl")
# Published runs end at 0.01 to 0.3 per token; TRL's PPO at 5 to 20 per answer of about 50 tokens.
MAX_KL = {"kl": 1.0, "objective/kl": 100.0}
MIN_RISE = 10.0
MIN_RISE_WITHOUT_REWARD = 3.0
"""A KL that rises in a straight line from 0 has nine times the first fifth's median in the last fifth; three times is
one that had risen before the first records"""
FIRST_RECORDS = 3
MAX_SINGLE_KL = 100.0
"""Per token. torchforge's report has a mean of a million; at 100 a token's probability differs by e to the 5 or so"""
MIN_RECORDS = 10


class PolicyRunsAwayFromItsReference(LogRule):
    code = "LOG180"
    fault = Fault.POLICY_MOVES_TOO_FAR
    symptoms = ("reward-rises-model-is-worse", "garbage-output")
    severity = "warning"
    kinds = ("reinforcement",)

    def unmet(self) -> Unmet | None:
        """Also unmet where no KL is logged, as with a coefficient of 0."""
        if (unmet := super().unmet()) is not None:
            return unmet
        if self._kl_curve()[1]:
            return None
        return Unmet(f"the log has no {MIN_RECORDS} records of a KL divergence from the reference")

    def measurement_if_clean(self) -> str:
        """The KL at both ends."""
        name, curve = self._kl_curve()
        return "{} goes from {:.3g} to {:.3g}".format(name, *ends_of_curve(curve))

    def findings(self) -> Iterator[Finding]:
        """The finding on a KL that runs away."""
        name, curve = self._kl_curve()
        if self.subject.kind != "reinforcement" or not curve:
            return
        reward = self.subject.curve("reward").finite()
        is_in_vain = reward.step.size >= MIN_RECORDS and not does_reward_rise(self.subject)
        message = _describe_fault(name, curve, is_in_vain=is_in_vain)
        if message is None:
            return
        evidence = []
        if reward.step.size >= MIN_RECORDS:
            evidence.append("the reward goes from {:.3g} to {:.3g}".format(*ends_of_curve(reward)))
        yield self.finding(
            message,
            "go back to a checkpoint before that; then lower learning_rate, or raise beta (the KL coefficient) to 0.01"
            " to 0.04",
            evidence=evidence,
            total=int(curve.step.size),
            figure=draw_curves(name, {name: curve}),
        )

    def _kl_curve(self) -> tuple[str, Curve]:
        """The KL with its name."""
        return first_known_curve(self.subject, KL_NAMES, MIN_RECORDS)


def _describe_fault(name: str, curve: Curve, *, is_in_vain: bool) -> str | None:
    """The message on a KL; None where it is sound.

    Args:
        name: of the curve.
        curve: its finite records.
        is_in_vain: the reward is logged and does not rise.
    """
    unit = "token" if name == "kl" else "answer"
    ends = ends_of_curve(curve)
    begin, rise = ends.first, MIN_RISE
    if is_in_vain:
        begin = min(begin, float(np.median(curve.value[:FIRST_RECORDS])))
        rise = MIN_RISE_WITHOUT_REWARD
    if ends.last > max(MAX_KL[name], rise * begin):
        return (
            f"the KL to the reference goes from {begin:.3g} to {ends.last:.3g} per {unit}: the policy has left the"
            " model that it started from"
        )
    highest = int(curve.value.argmax())
    if name == "kl" and curve.value[highest] > MAX_SINGLE_KL:
        return (
            f"the KL to the reference is {curve.value[highest]:.3g} per {unit} at step {curve.step[highest]:,.0f}: a"
            " token that the reference holds for impossible outweighs its batch"
        )
    return None
