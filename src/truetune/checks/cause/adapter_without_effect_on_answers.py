"""The adapter is loaded but changes nothing.

## What it does
Compares the log-probabilities of the tokens of some reference answers with and without the adapter. If they are exactly
equal, the adapter is not applied, or is all zero (error). If they differ by less than 0.001 on average, it is applied
but has almost no effect (warning).

## Why it is bad
The answers are those of the base model. Loaders skip keys that match no module, with a warning at most. A scale of 0 is
not an error, and a LoRA whose second matrix never changed is still zero.

## Example

```yaml
kind: adapter
look: {stopped: 1}
effect: {difference: 0, model: -2.1, base: -2.1, tokens: 412}
```

## Use instead

```yaml
kind: adapter
look: {stopped: 8}
effect: {difference: 0.7, model: -1.2, base: -2.1, tokens: 412}
```

## Fix safety
There is no automatic fix: compare the names in adapter_model.safetensors with the modules of the base, look at
`lora_alpha` in adapter_config.json, and check whether training changed the adapter at all (`truetune check ADAPTER`).

## References

- huggingface/peft#1323, huggingface/peft#2566, vllm-project/vllm#11406
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import NOT_WITH_AND_WITHOUT
from truetune.checks.rule import CauseRule

# Nats a token. Exactly equal computations give 0; the sum over many tokens in float32 may leave its rounding.
MAX_NATS_OF_NO_EFFECT = 1e-6
# Chosen, not measured: a step of training that does anything moves references by hundredths. At half, some dead
# adapters in bf16 would pass for their rounding; at 0.01 the first steps of a slow run would be named.
MAX_NATS_OF_FEEBLE = 1e-3


class AdapterWithoutEffectOnAnswers(CauseRule):
    code = "CAU005"
    fault = Fault.BASE_ANSWERS_INSTEAD_OF_TUNED_MODEL
    symptoms = ("nothing-is-learned",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    spoils = "model"
    file_rules = (
        "adapter-keys-do-not-match",
        "weights-all-zero",
        "adapter-file-empty",
        "weights-file-broken",
        "zero3-shards-saved-as-empty-tensors",
        "weights-changed-since-training",
    )

    def unmet(self) -> Unmet | None:
        if self.subject.kind != "adapter":
            return Unmet("it is about adapters")
        return NOT_WITH_AND_WITHOUT if self.subject.effect is None else None

    def measurement_if_clean(self) -> str:
        """How much the adapter changes the tokens of the references, in nats each."""
        effect = self.subject.effect
        assert effect is not None
        return (
            f"the adapter changes the log-probabilities of {effect.tokens:,} reference tokens by"
            f" {effect.difference:.2g} on average"
        )

    def findings(self) -> Iterator[Finding]:
        effect = self.subject.effect
        if self.subject.kind != "adapter" or effect is None:
            return
        # A difference that is NaN is no small one: worse-than-its-base names it.
        if not effect.difference < MAX_NATS_OF_FEEBLE:
            return
        has_none = effect.difference <= MAX_NATS_OF_NO_EFFECT
        message = (
            "the adapter has hardly any effect: it changes the log-probability of a reference token by"
            f" {effect.difference:.2g} on average"
        )
        if has_none:
            message = (
                "the adapter has no effect: the reference answers are exactly as likely without it"
            )
        yield self.finding(
            message,
            "run `truetune check` on the adapter's folder: its keys must match the base's modules, lora_alpha must"
            " not be 0, and the lora_B matrices must not be all zero",
            severity="error" if has_none else "warning",
            evidence=[
                f"mean absolute difference of the log-probabilities of {effect.tokens:,} tokens:"
                f" {effect.difference:.2g}"
            ],
        )
