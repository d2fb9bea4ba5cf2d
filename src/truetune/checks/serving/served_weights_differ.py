"""The server gives other log-probabilities than the model does, and they are not the base's either.

## What it does

Compares the log-probabilities of the same answers, by the server and by the model on this machine. It fires where
their difference is more than half of what training changed; or, where no base is known, more than 0.3 nats a token.

## Why it is bad

Another checkpoint, another adapter, a quantisation that lost the training, or a merge into another base is served. The
scores of the model that was measured are not those of the model that is used.

## Example

```yaml
strength: {by: logprobs, places: 96, adapter: true, factor: 0.9, cosine: 0.41, effect: 1.9, distance: 4.2}
```

## Use instead

```yaml
strength: {by: logprobs, places: 96, adapter: true, factor: 0.998, cosine: 0.999, effect: 1.9, distance: 0.02}
```

## Fix safety

There is no automatic fix: compare the files that are served with these (`truetune movement`), and their precision.

## References

- huggingface/peft#1043, artidoro/qlora#28, vllm-project/vllm#34186
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ServingRule
from truetune.checks.serving.adapter_is_not_served import is_gone, strength_told
from truetune.checks.serving.adapter_is_served_at_another_strength import is_part

ALONE = 0.3
"""Nats a token, where nothing is known of the effect of training"""
SHARE = 0.5
"""Of the effect of training"""


class ServedWeightsDiffer(ServingRule):
    code = "SRV010"
    severity = "warning"
    since = "0.1.0"
    part = "strength"

    def unmet(self) -> Unmet | None:
        if unmet := super().unmet():
            return unmet
        found = self.subject.strength
        assert found is not None
        if found.distance is None:
            return Unmet(
                "the server tells no log-probabilities of given tokens",
                "start it with logprobs of prompts",
            )
        explained = is_gone(found) or is_part(found)
        return Unmet("the strength of the adapter explains the difference") if explained else None

    def figure(self) -> str:
        assert self.subject.strength is not None
        return strength_told(self.subject.strength)

    def findings(self) -> Iterator[Finding]:
        found = self.subject.strength
        if found is None or found.distance is None or is_gone(found) or is_part(found):
            return
        if found.distance <= max(ALONE, SHARE * found.effect if found.effect is not None else 0.0):
            return
        yield self.finding(
            f"the server's log-probabilities are {found.distance:.2g} nats a token off the model's",
            "look which weights, which adapter and which quantisation the server was started with",
            evidence=[
                f"over {found.places} tokens of the model's own answers",
                *(
                    [
                        f"what training changed: {found.effect:.2g} nats a token; served of it:"
                        f" {found.factor:.0%}, cosine {found.cosine:.2f}"
                    ]
                    if found.effect is not None
                    else []
                ),
            ],
        )
