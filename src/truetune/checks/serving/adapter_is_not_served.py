"""The server answers like the base model: nothing of the training is served.

## What it does
Scores the same answers with the base model, with the tuned model (both on this machine) and with the server. The share
of the tuned model's effect on the log-probabilities that the server shows must not be near 0. If a server reports no
log-probabilities, its greedy answers are compared at prompts to which base and tuned model answer differently.

## Why it is bad
An engine that finds no matching tensor in an adapter still loads it and serves the base model: keys with another
prefix, modules that it does not support, a request that names the base and not the adapter. There is no error message.

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

An engine inside a script can have the same fault: vLLM's `LLM(enable_lora=True)` answers like the base if `generate` or
`chat` has no `lora_request`. `truetune lint SCRIPT` finds it (`base-asked-instead`), and `truetune check FOLDER` finds
two files with the same answers (`two-models-answer-alike`).

## References

- vllm-project/vllm#6250, vllm-project/vllm#34186, vllm-project/vllm#48019
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
)


class AdapterIsNotServed(ServingRule):
    code = "SRV008"
    fault = Fault.BASE_ANSWERS_INSTEAD_OF_TUNED_MODEL
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    part = "strength"

    def unmet(self) -> Unmet | None:
        """Why the rule can say nothing, also where log-probabilities are no numbers; None where it can."""
        return super().unmet() or explain_nan_logprobs(self.subject.strength)

    def measurement_if_clean(self) -> str:
        """How much of what training changed is served."""
        assert self.subject.strength is not None
        return describe_strength(self.subject.strength)

    def findings(self) -> Iterator[Finding]:
        """The finding on a server that answers as the base does."""
        strength = self.subject.strength
        if strength is None or not is_nothing_of_training_served(strength):
            return
        subject = "the adapter" if strength.adapter else "what training changed"
        remedy = "start the server with this model's folder, not the base's"
        if strength.adapter:
            remedy = (
                'name the adapter in each request (vLLM: --enable-lora --lora-modules NAME=DIR, and "model":'
                ' "NAME"), or merge it (truetune merge) and serve the merged model'
            )
        evidence = (
            f"of {strength.places} greedy answers at which base and tuned model differ, {strength.as_base} are the"
            f" base's and {strength.as_tuned} the tuned model's"
        )
        if strength.factor is not None and strength.effect is not None:
            evidence = (
                f"{strength.factor:.1%} of the training's effect on {strength.places} log-probabilities is served"
                f" (the effect is {strength.effect:.2g} per token)"
            )
        yield self.finding(
            f"{subject} is not served: the server answers like the base model",
            remedy,
            evidence=[evidence],
        )
