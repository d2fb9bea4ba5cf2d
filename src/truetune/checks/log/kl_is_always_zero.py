"""The KL to the reference is exactly 0 at every step: the reference moves with the policy.

## What it does
Reads `kl` in the logs of TRL's trainers on sampled answers (GRPO, RLOO), which have it only where `beta` is not 0. It
warns if it is exactly 0 in all of 20 records or more, and the learning rate and the gradients are not 0.

## Why it is bad
The policy has been trained, so it differs from the model that it started from. A KL of 0 means that both
log-probabilities come from the same weights: the reference is the policy itself, or an adapter was not switched off for
it. The penalty holds nothing, and the policy may go anywhere.

## Example
```yaml
curve:
  reward: {from: 0.2, to: 0.6, steps: 60, noise: 0.02}
  completions/mean_length: {from: 210, to: 230, steps: 60, noise: 3}
  learning_rate: {from: 1.0e-6, to: 1.0e-7, steps: 60}
  kl: {from: 0.0, steps: 60}
```

## Use instead
```yaml
curve:
  reward: {from: 0.2, to: 0.6, steps: 60, noise: 0.02}
  completions/mean_length: {from: 210, to: 230, steps: 60, noise: 3}
  learning_rate: {from: 1.0e-6, to: 1.0e-7, steps: 60}
  kl: {from: 0.0, to: 0.04, steps: 60, noise: 0.001}
```

## Fix safety
With a reference of its own, the penalty is in force: the reward rises more slowly. `beta=0` trains without one, and
says so.

## References
- huggingface/trl trl/trainer/grpo_trainer.py (`kl` is logged where `beta` is not 0)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import LogRule

MIN_POINTS = 20
"""Records. The first ones of a warm-up have a KL that is rounded to 0; the weights have moved after 20"""
LOGGED_BY_TRL = "completions/mean_length"
"""OpenRLHF and others write a KL of 0 where they compute none"""


class KlIsAlwaysZero(LogRule):
    code = "LOG199"
    fault = Fault.REFERENCE_IS_NOT_THE_START
    severity = "warning"
    symptoms = ("reward-rises-model-is-worse",)
    kinds = ("reinforcement",)
    needs = ("kl",)
    least = MIN_POINTS

    def unmet(self) -> Unmet | None:
        """Also unmet for other programs, and where nothing is trained."""
        if (unmet := super().unmet()) is not None:
            return unmet
        log = self.subject
        if log.program or not log.curve(LOGGED_BY_TRL) or log.format == "printed output":
            return Unmet("it is about logs of TRL, which has no KL where none is computed")
        still = [
            name
            for name in ("learning_rate", "grad_norm")
            if log.curve(name) and not log.curve(name).finite().value.any()
        ]
        return Unmet(f"{still[0]} is 0 throughout, so nothing is trained") if still else None

    def measurement_if_clean(self) -> str:
        """How many of the records have a KL of 0."""
        value = self.subject.curve("kl").finite().value
        return f"the KL is exactly 0 at {int((value == 0).sum()):,} of {value.size:,} records"

    def findings(self) -> Iterator[Finding]:
        """The finding on a KL that is 0 in every record."""
        if self.unmet() is not None:
            return
        value = self.subject.curve("kl").finite().value
        if value.any():
            return
        yield self.finding(
            f"the KL to the reference is exactly 0 in all {value.size:,} records: the reference is the policy itself,"
            " and the penalty holds nothing",
            "give the trainer a reference of its own: pass the base by its name, and no model that shares its weights;"
            " with PEFT, train one adapter (the reference is the base with it switched off); or set beta=0",
            total=int(value.size),
        )
