"""The server applies the adapter with another scaling than in training.

## What it does
If the served effect of training on the log-probabilities has the same direction as the tuned model's own, but is less
than 0.8 or more than 1.25 times as large, it computes the adapter on this machine with the scalings that known mistakes
produce: `alpha/r` instead of `alpha/sqrt(r)` (rsLoRA), alpha ignored, twice, half. It names the one that matches the
server (an error); otherwise it is a warning.

## Why it is bad
An engine or exporter that does not read `use_rslora` or `alpha_pattern` serves a fine-tune that is too weak or too
strong: with r = 64, rsLoRA is served at an eighth of its strength.

## Example

```yaml
strength:
  {by: logprobs, places: 96, adapter: true, factor: 0.27, cosine: 0.98, effect: 1.9, distance: 1.4,
   explained: "alpha/r instead of alpha/sqrt(r): use_rslora was not read", explained_distance: 0.01}
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

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ServingRule
from truetune.checks.serving.adapter_strength_verdicts import (
    describe_strength,
    explain_nan_logprobs,
    is_nothing_of_training_served,
    is_served_at_other_strength,
)


class AdapterIsServedAtAnotherStrength(ServingRule):
    code = "SRV009"
    fault = Fault.ADAPTER_STRENGTH_DIFFERS
    symptoms = ("nothing-is-learned", "good-here-bad-there")
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    part = "strength"

    def unmet(self) -> Unmet | None:
        """Why the strength can't be told: no log-probabilities, or nothing of the adapter is served;
        None where it can.
        """
        unmet = super().unmet() or explain_nan_logprobs(self.subject.strength)
        if unmet is not None:
            return unmet
        strength = self.subject.strength
        assert strength is not None
        if strength.factor is None or strength.cosine is None:
            return Unmet(
                "the server reports no log-probabilities of given tokens",
                "start it so that it returns prompt logprobs",
            )
        if is_nothing_of_training_served(strength):
            return Unmet("nothing of it is served, which adapter-is-not-served reports")
        return None

    def measurement_if_clean(self) -> str:
        """How much of what training changed is served, and whether it points the same way (cosine)."""
        strength = self.subject.strength
        assert strength is not None
        return f"{describe_strength(strength)}, cosine {strength.cosine:.3f}"

    def findings(self) -> Iterator[Finding]:
        """The finding on an adapter that is served weaker or stronger than it was trained."""
        strength = self.subject.strength
        if strength is None or not is_served_at_other_strength(strength):
            return
        remedy = "serve this model's folder unchanged"
        if strength.adapter:
            remedy = (
                "merge the adapter (truetune merge) and serve the merged model, or use an engine that reads"
                " use_rslora and alpha_pattern"
            )
        evidence = [
            f"over {strength.places} log-probabilities: cosine similarity {strength.cosine:.3f}; they differ by"
            f" {strength.distance:.2g} per token, of an effect of {strength.effect:.2g}"
        ]
        if strength.explained_distance is not None:
            evidence.append(
                f"with that scaling, the difference is {strength.explained_distance:.2g} per token"
            )
        yield self.finding(
            f"the server applies {strength.factor or 0:.0%} of the training's effect"
            + (f": {strength.explained}" if strength.explained else ""),
            remedy,
            # A scaling that gives just what is served proves the cause; a mere factor may have others (a quantisation).
            severity="error" if strength.explained else "warning",
            evidence=evidence,
        )
