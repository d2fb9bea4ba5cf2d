"""The adapter is loaded and changes nothing.

## What it does

Compares the log-probabilities of the tokens of some reference answers with the adapter and without it. Where they are
exactly equal, the adapter is not applied, or is all zero (error). Where they differ by less than 0.001 nats on average,
it is applied and does next to nothing (warning).

## Why it is bad

The answers are those of the base. Loaders skip keys that fit no module with a warning at most, a scale of 0 is no
error, and LoRA whose second matrix never moved is still zero.

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

There is no automatic fix: compare the names in adapter_model.safetensors with the modules of the base, see `lora_alpha`
in adapter_config.json, and whether the training moved the adapter at all (`truetune check`).

## References

- huggingface/peft#1323, huggingface/peft#2566, vllm-project/vllm#11406
"""

from __future__ import annotations

from collections.abc import Iterator

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
            f"the adapter changes {effect.tokens:,} tokens of the references by"
            f" {effect.difference:.2g} nats each"
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
            f"the adapter has hardly an effect: {effect.difference:.2g} nats/token of the"
            " reference answers"
        )
        if has_none:
            message = (
                "the adapter has no effect: the reference answers are exactly as likely without it"
            )
        yield self.finding(
            message,
            "compare the adapter's keys with the base's modules, and see that lora_alpha and lora_B"
            " are not 0",
            severity="error" if has_none else "warning",
            evidence=[
                f"mean |difference| of the log-probabilities of {effect.tokens:,} tokens: "
                f"{effect.difference:.2g} nats"
            ],
        )
