"""The adapter is applied with another scaling than in training.

## What it does

Where the served effect of training on the log-probabilities points the same way as the tuned model's own, and is
less than 0.8 or more than 1.25 of it, asks the adapter on this machine with the scalings that known mistakes make:
`alpha/r` in place of `alpha/sqrt(r)` (rsLoRA), alpha left out, twice, half. The one that gives what is served is named,
and it is an error; else a warning.

## Why it is bad

An engine or exporter that does not read `use_rslora` or `alpha_pattern` serves a weak or an overdone fine-tune: with
r = 64, rsLoRA is served at an eighth.

## Example

```yaml
strength:
  {by: logprobs, places: 96, adapter: true, factor: 0.27, cosine: 0.98, effect: 1.9, distance: 1.4,
   explained: "alpha/r in place of alpha/sqrt(r): use_rslora was not read", explained_distance: 0.01}
```

## Use instead

```yaml
strength: {by: logprobs, places: 96, adapter: true, factor: 0.998, cosine: 0.999, effect: 1.9, distance: 0.02}
```

## Fix safety

There is no automatic fix: merge the adapter (`truetune merge`), which applies the scaling of training, or use a release
of the engine that reads it.

## References

- vllm-project/vllm#6909, vllm-project/vllm#10798, sgl-project/sglang#40835, NVIDIA/TensorRT-LLM#1668
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ServingRule
from truetune.checks.serving.adapter_is_not_served import is_gone, not_numbers, strength_told
from truetune.generation.server_observations import AdapterStrength

WHOLE = (0.8, 1.25)
SAME_WAY = 0.8
"""Cosine from which on it is the same effect"""


class AdapterIsServedAtAnotherStrength(ServingRule):
    code = "SRV009"
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    part = "strength"

    def unmet(self) -> Unmet | None:
        if unmet := super().unmet() or not_numbers(self.subject.strength):
            return unmet
        found = self.subject.strength
        assert found is not None
        if found.factor is None or found.cosine is None:
            return Unmet(
                "the server tells no log-probabilities of given tokens",
                "start it with logprobs of prompts",
            )
        return (
            Unmet("nothing of it is served, which adapter-is-not-served is about")
            if is_gone(found)
            else None
        )

    def figure(self) -> str:
        assert self.subject.strength is not None
        return f"{strength_told(self.subject.strength)}, cosine {self.subject.strength.cosine:.3f}"

    def findings(self) -> Iterator[Finding]:
        found = self.subject.strength
        if found is None or not is_part(found):
            return
        yield self.finding(
            f"the server applies {found.factor or 0:.0%} of what training changed"
            + (f": {found.explained}" if found.explained else ""),
            (
                "merge the adapter (truetune merge) and serve the merged model, or use an engine"
                " that reads its scaling"
                if found.adapter
                else "serve this model's folder as it is"
            ),
            severity="error" if found.explained else "warning",
            evidence=[
                (
                    f"over {found.places} log-probabilities: cosine {found.cosine:.3f}, off by"
                    f" {found.distance:.2g} nats a token of an effect of {found.effect:.2g}"
                ),
                *(
                    [
                        f"with that scaling the adapter is off by {found.explained_distance:.2g}"
                        " nats a token"
                    ]
                    if found.explained_distance is not None
                    else []
                ),
            ],
        )


def is_part(strength: AdapterStrength) -> bool:
    """Is it the same effect, weaker or stronger? A named scaling needs no cosine: strong ones turn the effect."""
    if strength.factor is None or strength.cosine is None or is_gone(strength):
        return False
    return bool(strength.explained) or (
        strength.cosine >= SAME_WAY and not WHOLE[0] <= strength.factor <= WHOLE[1]
    )
