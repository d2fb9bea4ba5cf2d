"""The log-probabilities show that the answers were not sampled from the trained policy.

## What it does
Reads two figures of trainers that generate. The first is the KL divergence from the reference (`objective/kl` of PPO,
`kl`). It can't be negative if the answers are samples of the policy. The rule warns if its median is below -1 per
answer (-0.02 per token) and 80 % of the records are below 0. The second is the difference between the log-probabilities
of the sampler and of the trainer (`sampling/sampling_logp_difference/mean` of TRL; slime and open-instruct log it too),
or the KL divergence of both (prime-rl, NeMo-RL, verl): it warns if the median is 0.1 per token or more. Of
probabilities (verl's `training/rollout_probs_diff_mean`) it warns from 0.05 on.

## Why it is bad
The gradients of PPO and GRPO are right only for answers of the policy. `generate` may cut off the distribution (top_k,
top_p, a forbidden EOS, a minimum length), sample from old weights, or pad in another way than the trainer. The policy
is then pushed towards answers that it would not have given. A negative KL is even rewarded, and the model drifts into
garbage.

## Example
```yaml
curve:
  objective/kl: {from: 0.0, to: -20.0, steps: 60, noise: 0.2}
  objective/scores: {from: 0.5, to: 0.6, steps: 60, noise: 0.02}
```

## Use instead
```yaml
curve:
  objective/kl: {from: 0.0, to: 7.0, steps: 60, noise: 0.2}
  objective/scores: {from: 0.5, to: 0.9, steps: 60, noise: 0.02}
```

## Fix safety
Sample with `top_k=0`, `top_p=1.0`, `do_sample=True` and the trainer's temperature, no minimum length and the real EOS:
answers become more varied. With vLLM, check that the weights are updated after each step and that both sides compute in
the same dtype.

## References
- huggingface/trl#1005, huggingface/trl#235, huggingface/trl#5312; verl's `docs/faq/faq.rst` (`rollout_probs_diff_mean`)
"""

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
    first_known_curve,
)
from truetune.checks.rule import LogRule
from truetune.logs.run_log import Curve

# TRL warns below -1 nat an answer: an estimate of a small divergence from a few answers is noisy around 0.
MAX_KL_BY_CURVE = {"objective/kl": -1.0, "kl": -0.02}
"""Median KL up to which it is called negative: of whole answers in PPO, of tokens in GRPO"""
MIN_NEGATIVE_SHARE = 0.8
MIN_RECORDS = 5
FIRST_RECORDS, MIN_GROWTH = 3, 3.0
"""Records before the sampler's weights can be old, and how much the difference has grown if they are"""
# TRL's users report 0.01 to 0.02 nats for bfloat16 on both sides, and 0.2 where the sampler's weights were wrong.
MAX_LOGP_DIFFERENCE = 0.1
MAX_SAMPLER_KL = 0.1
"""From here on verl's guide calls a mismatch significant; NeMo-RL's own runs stay below 0.01"""
MAX_PROBABILITY_DIFFERENCE = 0.05
"""Ten times the 0.005 below which verl's questions and answers call both engines alike; public runs have 0.003
in bfloat16 and 0.012 with a sampler in 8 bits"""


class SampledAnswersAreNotThePolicys(LogRule):
    code = "LOG170"
    fault = Fault.TRAINED_COMPLETIONS_NOT_AS_SAMPLED
    symptoms = ("reward-does-not-rise", "agent-training", "garbage-output")
    severity = "warning"
    kinds = ("reinforcement",)

    def unmet(self) -> Unmet | None:
        """Also unmet where the log has neither a KL nor a difference of log-probabilities."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        names = (*MAX_KL_BY_CURVE, *SAMPLER_DIFFERENCES)
        if any(self._has_enough_records(name) for name in names):
            return None
        return Unmet(
            f"the log has no {MIN_RECORDS} records of a KL divergence or of a difference between the"
            " sampler's and the trainer's log-probabilities"
        )

    def measurement_if_clean(self) -> str:
        """The median of each figure."""
        names = (
            name
            for name in (*MAX_KL_BY_CURVE, *SAMPLER_DIFFERENCES)
            if self._has_enough_records(name)
        )
        return "; ".join(
            f"{name} is {np.median(self._finite_records_of_curve(name).value):.3g} in the median"
            for name in names
        )

    def findings(self) -> Iterator[Finding]:
        if self.subject.kind != "reinforcement":
            return
        for name, limit in MAX_KL_BY_CURVE.items():
            if self._has_enough_records(name) and _is_kl_clearly_negative(
                self._finite_records_of_curve(name), limit
            ):
                yield self._finding_on_negative_kl(name)
        name, difference = first_known_curve(self.subject, SAMPLER_DIFFERENCES, MIN_RECORDS)
        if difference:
            yield from self._findings_on_logp_difference(name, difference)

    def _finding_on_negative_kl(self, name: str) -> Finding:
        """The finding on a KL divergence below 0."""
        curve = self._finite_records_of_curve(name)
        below = int((curve.value < 0).sum())
        return self.finding(
            f"{name} is negative in {below:,} of {curve.step.size:,} records, down to"
            f" {curve.value.min():.3g}: the answers are not samples of the policy, and moving away from the"
            " reference is rewarded",
            "sample from the whole distribution (top_k=0, top_p=1.0, do_sample=True, the trainer's"
            " temperature), with the real EOS and no minimum length, and pad on the left",
            count=below,
            total=int(curve.step.size),
            figure=draw_curves(name, {name: curve}),
        )

    def _findings_on_logp_difference(self, name: str, curve: Curve) -> Iterator[Finding]:
        """The finding on a sampler whose log-probabilities are not the trainer's."""
        median = float(np.median(curve.value))
        if median < largest_usual_difference(name):
            return
        evidence = []
        first = float(np.median(curve.value[:FIRST_RECORDS]))
        if first < median / MIN_GROWTH:
            evidence.append(
                f"it was {first:.2g} in the first records: the sampler began with the right weights, and the updates"
                " do not reach it"
            )
        ratio = self._finite_records_of_curve("sampling/importance_sampling_ratio/mean")
        if ratio:
            evidence.append(
                f"the importance sampling ratio is {np.median(ratio.value):.2f} in the median"
            )
        correlation = self._finite_records_of_curve(SAMPLER_CORRELATION)
        if correlation:
            evidence.append(
                f"the correlation of both is {np.median(correlation.value):.2f} in the median"
            )
        figures = "probabilities" if name in PROBABILITY_DIFFERENCES else "log-probabilities"
        measure = "a KL of " if name in SAMPLER_KLS else ""
        yield self.finding(
            f"the sampler's {figures} differ from the trainer's by {measure}{median:.2g}"
            " per token (median): it samples from other weights, or with other settings",
            "check that the weights reach the sampler after each step (sleep mode, LoRA, quantization),"
            " that top_p, top_k and temperature are the trainer's, and that both use the same dtype",
            evidence=evidence,
            total=int(curve.step.size),
            figure=draw_curves(name, {name: curve}),
        )

    def _finite_records_of_curve(self, name: str) -> Curve:
        """The finite records of a curve."""
        return self.subject.curve(name).finite()

    def _has_enough_records(self, name: str) -> bool:
        """Has a curve enough records?"""
        return self._finite_records_of_curve(name).step.size >= MIN_RECORDS


def largest_usual_difference(name: str) -> float:
    """From where on a difference of sampler and trainer is large, by the name of its curve."""
    if name in SAMPLER_KLS:
        return MAX_SAMPLER_KL
    return MAX_PROBABILITY_DIFFERENCE if name in PROBABILITY_DIFFERENCES else MAX_LOGP_DIFFERENCE


def _is_kl_clearly_negative(curve: Curve, limit: float) -> bool:
    """Is a KL divergence clearly below 0, in the median and in most records?"""
    share = float((curve.value < 0).mean())
    return share >= MIN_NEGATIVE_SHARE and float(np.median(curve.value)) < limit
