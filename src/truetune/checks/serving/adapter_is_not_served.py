"""The server answers as the base model does: what training changed is not there.

## What it does

Scores the same answers by the base, by the tuned model (both on this machine) and by the server. The part of the
tuned model's effect on the log-probabilities that is served must not be near 0. Where a server tells none, its greedy
answers are compared at prompts where base and tuned model answer differently.

## Why it is bad

An engine that finds no matching tensor in an adapter loads it all the same and serves the base: keys with another
prefix, modules that it does not support, a request that names the base and not the adapter. There is no error.

## Example

```yaml
strength: {by: logprobs, places: 96, adapter: true, factor: 0.002, cosine: 0.03, effect: 1.9, distance: 1.9}
```

## Use instead

```yaml
strength: {by: logprobs, places: 96, adapter: true, factor: 0.998, cosine: 0.999, effect: 1.9, distance: 0.02}
```

## Fix safety

There is no automatic fix: name the adapter in each request (vLLM: `--enable-lora --lora-modules NAME=DIR`, and `model:
NAME`), or merge it (`truetune merge`) and serve the merged model.

## References

- vllm-project/vllm#6250, vllm-project/vllm#34186, vllm-project/vllm#48019
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ServingRule
from truetune.generation.server_observations import AdapterStrength

GONE = 0.15
"""A part of the effect below which it is not there"""
ENOUGH = 3
"""Answers that an error needs"""


class AdapterIsNotServed(ServingRule):
    code = "SRV008"
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    part = "strength"

    def unmet(self) -> Unmet | None:
        return super().unmet() or not_numbers(self.subject.strength)

    def figure(self) -> str:
        assert self.subject.strength is not None
        return strength_told(self.subject.strength)

    def findings(self) -> Iterator[Finding]:
        found = self.subject.strength
        if found is None or not is_gone(found):
            return
        what = "the adapter" if found.adapter else "what training changed"
        yield self.finding(
            f"{what} is not served: the server answers as the base model does",
            (
                "name the adapter in each request (the model's name that the server gave it), or"
                " merge it (truetune merge) and serve the merged model"
                if found.adapter
                else "start the server with this model's folder"
            ),
            evidence=[
                (
                    f"{found.factor:.1%} of the effect on {found.places} log-probabilities is there"
                    f" (effect {found.effect:.2g} nats a token)"
                    if found.factor is not None and found.effect is not None
                    else (
                        f"of {found.places} greedy answers where base and tuned model part,"
                        f" {found.as_base} are the base's and {found.as_tuned} the tuned model's"
                    )
                )
            ],
        )


def is_gone(strength: AdapterStrength) -> bool:
    """Is nothing of it served?"""
    if (
        strength.factor is not None
        and strength.distance is not None
        and strength.effect is not None
    ):
        return abs(strength.factor) < GONE and strength.distance < 2 * strength.effect
    return strength.by == "answers" and not strength.as_tuned and strength.as_base >= ENOUGH


def strength_told(found: AdapterStrength) -> str:
    """How much of what training changed is served, in one line."""
    if found.factor is not None and found.distance is not None:
        return (
            f"{found.factor:.0%} of what training changed is served, over {found.places:,}"
            f" log-probabilities; off by {found.distance:.2g} nats a token"
        )
    if found.distance is not None:
        return (
            f"the log-probabilities of {found.places:,} tokens are off by {found.distance:.2g} nats"
            " each"
        )
    return (
        f"of {found.places:,} greedy answers {found.as_tuned:,} are the tuned model's,"
        f" {found.as_base:,} the base's"
    )


def not_numbers(found: AdapterStrength | None) -> Unmet | None:
    """Why log-probabilities that are no numbers say nothing of a strength."""
    told = (
        [value for value in (found.factor, found.distance) if value is not None]
        if found is not None
        else []
    )
    lost = any(not isfinite(value) for value in told)
    return (
        Unmet("log-probabilities are no numbers, which served-weights-differ is about")
        if lost
        else None
    )
