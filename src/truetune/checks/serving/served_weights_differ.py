"""The server's log-probabilities are neither the model's nor the base model's.

## What it does
Compares the log-probabilities of the same answers from the server and from the model on this machine. It fires if they
differ by more than half of what training changed; or, if no base is known, by more than 0.3 per token.

## Why it is bad
The server runs another checkpoint, another adapter, a quantization that lost the training, or a merge into another
base. The scores of the measured model are not those of the model in use.

## Example

```yaml
strength: {by: logprobs, places: 96, adapter: true, factor: 0.9, cosine: 0.41, effect: 1.9, distance: 4.2}
```

## Use instead

```yaml
strength: {by: logprobs, places: 96, adapter: true, factor: 0.998, cosine: 0.999, effect: 1.9, distance: 0.02}
```

## Fix safety
There is no automatic fix: compare the served files with these (`truetune movement`), and their precision.

## References

- huggingface/peft#1043, artidoro/qlora#28, vllm-project/vllm#34186
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ServingRule
from truetune.checks.serving.adapter_strength_verdicts import (
    describe_strength,
    is_nothing_of_training_served,
    is_served_at_other_strength,
)

# Nats a token. Chosen, not measured here: 4-bit quantisation moves log-probabilities by some hundredths to a tenth of a
# nat, other weights by whole nats. At half, coarse quantisations that were meant would be named; at double, a second
# checkpoint of the same run would pass.
MAX_NATS_WITHOUT_BASE = 0.3
# Chosen, not measured: with half of the effect of training lost, the served model is nearer to neither. At 0.25
# ordinary quantisation of a weak fine-tune would be named; at 1 only a model without any of the training would.
MAX_SHARE_OF_EFFECT = 0.5


class ServedWeightsDiffer(ServingRule):
    code = "SRV010"
    fault = Fault.MODEL_USED_WITH_OTHER_SETTINGS
    symptoms = ("garbage-output", "nothing-is-learned", "good-here-bad-there")
    severity = "warning"
    since = "0.1.0"
    part = "strength"

    def unmet(self) -> Unmet | None:
        """Why the rule can say nothing: no log-probabilities, or the adapter's strength explains the
        difference; None where it can.
        """
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        strength = self.subject.strength
        assert strength is not None
        if strength.distance is None:
            return Unmet(
                "the server reports no log-probabilities of given tokens",
                "start it so that it returns prompt logprobs",
            )
        if is_nothing_of_training_served(strength) or is_served_at_other_strength(strength):
            return Unmet("the strength of the adapter explains the difference")
        return None

    def measurement_if_clean(self) -> str:
        """How much of what training changed is served."""
        assert self.subject.strength is not None
        return describe_strength(self.subject.strength)

    def findings(self) -> Iterator[Finding]:
        """The finding on log-probabilities of the server that are not the model's, where the adapter's
        strength does not explain it.
        """
        strength = self.subject.strength
        if strength is None or strength.distance is None:
            return
        if is_nothing_of_training_served(strength) or is_served_at_other_strength(strength):
            return
        limit = MAX_NATS_WITHOUT_BASE
        if strength.effect is not None:
            limit = max(limit, MAX_SHARE_OF_EFFECT * strength.effect)
        # A distance that is no number is above no limit by `>`, and is just what this rule is about.
        if strength.distance <= limit:
            return
        evidence = [f"over {strength.places} tokens of the model's own answers"]
        if strength.effect is not None:
            evidence.append(
                f"training changed them by {strength.effect:.2g} per token; the server shows {strength.factor:.0%}"
                f" of that (cosine similarity {strength.cosine:.2f})"
            )
        yield self.finding(
            f"the server's log-probabilities differ from the model's by {strength.distance:.2g} per token: it serves"
            " other weights",
            "check with which weights, adapter and quantization the server was started (truetune movement compares"
            " two folders), and restart it with this model",
            evidence=evidence,
        )
