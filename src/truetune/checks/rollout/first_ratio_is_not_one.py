"""The policy already differs from itself before its first update on a rollout.

## What it does

Compares, in the micro-batches before the first step on a rollout, the log-probabilities of the loss with those that
the trainer computed as the policy's own after sampling. The weights are the same, so the ratio must be 1. It is not
judged where the loss takes its own log-probabilities as the old ones, as TRL does where each rollout is used once.

## Why it is bad

A ratio that is not 1 is clipped or weighed as if the policy had moved: dropout in the policy, another padding, another
temperature or other weights. Part of the tokens lose their gradient before anything was learned.

## Example

```python
run = grpo(trl.GRPOTrainer, model=tiny_model(attention_dropout=0.3), num_iterations=2)
```

## Use instead

```python
run = grpo(trl.GRPOTrainer, model=tiny_model(attention_dropout=0.0), num_iterations=2)
```

## Fix safety

Without dropout is safe: `disable_dropout=True` for that of modules (LoRA's too), and `attention_dropout=0` in the
model's configuration, which TRL leaves as it is. Other causes have to be found: compute both sides with the same
batch.

## References

- huggingface/trl#4
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.auditing.rollout_run import RolloutRun
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rollout.evidence.reasons_rollouts_cannot_judge import (
    NO_PASS,
    reason_without_rewards_or_loss,
)
from truetune.checks.rule import RolloutRule
from truetune.probe.rollout_step import LossPass

TAKES_OWN = Unmet(
    "each rollout is used once: the loss takes its own log-probabilities as the old ones"
)
# TRL's own trainer on a CPU in float32: 0 to 3e-7. TF32, which GPUs take for float32, rounds to 10 bits, and so a logit
# of 10 by up to 5e-3. bfloat16 rounds it by up to 0.03, and other batches take other kernels; users of TRL log 0.01 to
# 0.02 between two computations in bfloat16.
MAX_LOG_RATIO = {"float32": 5e-3, "float64": 5e-3}
MAX_LOG_RATIO_ELSE = 0.05
"""nats/token, on average over the tokens in the loss"""


class FirstRatioIsNotOne(RolloutRule):
    code = "ROL008"
    fault = Fault.TRAINED_COMPLETIONS_NOT_AS_SAMPLED
    severity = "warning"
    symptoms = ("reward-does-not-rise",)

    def __init__(self, subject: RolloutRun) -> None:
        super().__init__(subject)
        self.tokens = 0
        self.mean = 0.0

    def unmet(self) -> Unmet | None:
        if not any(True for _ in self.subject.passes()):
            return super().unmet() or reason_without_rewards_or_loss(self.subject, NO_PASS)
        return super().unmet() or (None if self.tokens else TAKES_OWN)

    def findings(self) -> Iterator[Finding]:
        differences: list[np.ndarray] = []
        precision = "float32"
        for step, one in self.subject.passes():
            if one.optimizer_step == step.optimizer_step and one.old_logps is not None:
                differences.append(_log_ratios(one))
                precision = step.settings.precision
        if not differences:
            return
        ratios = np.concatenate(differences)
        self.tokens, self.mean = len(ratios), float(np.abs(ratios).mean()) if len(ratios) else 0.0
        if self.mean <= MAX_LOG_RATIO.get(precision, MAX_LOG_RATIO_ELSE):
            return
        yield self.finding(
            f"before the first update the policy differs from the one that sampled by {self.mean:.2g} nats/token on"
            f" average (ratios of {np.exp(ratios.min()):.3g} to {np.exp(ratios.max()):.3g}); it must be 0",
            "switch dropout off (disable_dropout=True, and attention_dropout=0 in the model's config), and compute both"
            " with the same batch, padding and temperature",
            evidence=[
                f"{len(ratios):,} tokens; {precision} explains {MAX_LOG_RATIO.get(precision, MAX_LOG_RATIO_ELSE):g}"
            ],
        )

    def measurement_if_clean(self) -> str:
        """The mean difference."""
        return f"{self.mean:.2g} nats/token between policy and sampling policy, over {self.tokens:,} tokens"


def _log_ratios(one: LossPass) -> np.ndarray:
    """(tokens in the loss,) or, where the old ones are sums, (completions,) means of a token."""
    assert one.old_logps is not None
    if one.old_logps.ndim == 1:
        lengths = np.maximum(one.in_loss.sum(axis=1), 1)
        sums = (one.logps * one.in_loss).sum(axis=1)
        return np.asarray((sums - one.old_logps) / lengths)
    return np.asarray((one.logps - one.old_logps)[one.in_loss])
