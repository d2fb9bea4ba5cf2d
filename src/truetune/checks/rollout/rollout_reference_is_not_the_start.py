"""The reference of a training by rewards is not the model that the policy starts from.

## What it does

Compares the log-probabilities of policy and reference in the micro-batches before the first step of the optimizer,
where there is a KL term; of RLOO, whose loss has none, those that it subtracts from the rewards. The KL divergence must
be 0 there. It is not judged in a training that continues another.

## Why it is bad

The KL term then pulls towards another model from the first step on: the base instead of the fine-tuned start, or
weights that were loaded otherwise. The reward falls before it rises, or never rises.

## Example

```python
run = grpo(trl.GRPOTrainer, beta=0.04)
run.ref_model.load_state_dict(tiny_model(seed=1).state_dict())
```

## Use instead

```python
run = grpo(trl.GRPOTrainer, beta=0.04)
```

## Fix safety

There is no automatic fix. A reference of an earlier stage may be meant.

## References

- huggingface/trl#3194, huggingface/trl#4723
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
from truetune.probe.rollout_step import RolloutStep

NO_KL_TERM = Unmet("there is no KL term: no reference is asked")
NO_REFERENCE = Unmet("the log-probabilities of the reference were not recorded")
CONTINUES = Unmet("the training continues another, so the policy has left its reference")
# As for a ratio at the first update (`first-ratio-is-not-one`): two computations of the same weights on the same batch.
MAX_DIFFERENCE = {"float32": 5e-3, "float64": 5e-3}
MAX_DIFFERENCE_ELSE = 0.05
"""nats/token, on average over the tokens in the loss"""


class RolloutReferenceIsNotTheStart(RolloutRule):
    code = "ROL009"
    fault = Fault.REFERENCE_IS_NOT_THE_START
    severity = "warning"
    symptoms = ("reward-rises-model-is-worse",)
    moot_where = ("first-ratio-is-not-one",)

    def __init__(self, subject: RolloutRun) -> None:
        super().__init__(subject)
        self.tokens = 0
        self.mean = 0.0

    def unmet(self) -> Unmet | None:
        steps = self.subject.steps
        if self.tokens or not steps:
            return super().unmet()
        if any(step.steps_at_start for step in steps):
            return CONTINUES
        passes = [one for _, one in self.subject.passes()]
        has_reference = any(one.reference_logps is not None for one in passes)
        if has_reference or any(step.settings.beta for step in steps):
            return reason_without_rewards_or_loss(self.subject, NO_REFERENCE)
        if not passes:
            return reason_without_rewards_or_loss(self.subject, NO_PASS)
        return NO_KL_TERM

    def findings(self) -> Iterator[Finding]:
        differences: list[np.ndarray] = []
        precision = "float32"
        for step in self.subject.steps:
            for values in _log_ratios_at_start(step):
                differences.append(values)
                precision = step.settings.precision
        if not differences:
            return
        values = np.concatenate(differences)
        self.tokens, self.mean = len(values), float(np.abs(values).mean()) if len(values) else 0.0
        if self.mean <= MAX_DIFFERENCE.get(precision, MAX_DIFFERENCE_ELSE):
            return
        kl = float((np.exp(values) - values - 1).mean())
        yield self.finding(
            f"before the first step the policy differs from its reference by {self.mean:.2g} nats/token on average"
            f" (KL {kl:.2g}); it must be 0",
            "take the model that the policy starts from as the reference; for a trained adapter its frozen copy, not"
            " the base without it",
            evidence=[
                f"{len(values):,} tokens; {precision} explains {MAX_DIFFERENCE.get(precision, MAX_DIFFERENCE_ELSE):g}"
            ],
        )

    def measurement_if_clean(self) -> str:
        """The mean difference."""
        return f"{self.mean:.2g} nats/token between policy and reference at the start, over {self.tokens:,} tokens"


def _log_ratios_at_start(step: RolloutStep) -> Iterator[np.ndarray]:
    """(tokens in the loss,) log-probability of the reference less that of the policy, before the first step."""
    for one in step.passes:
        if one.optimizer_step == 0 and one.reference_logps is not None:
            yield (one.reference_logps - one.logps)[one.in_loss]
    if step.optimizer_step == 0 and step.reference_log_ratios is not None:
        yield -step.reference_log_ratios[step.in_loss]
