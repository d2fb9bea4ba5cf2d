"""The reference answers are less likely under the model than under its base.

## What it does
Compares the mean log-probability of the tokens of some reference answers under the model and under its base. It fires
if the model's is significantly lower, by more than 1 per token, or is not a number.

## Why it is bad
Training on such answers makes them more likely, whatever else it does. An adapter that makes them much less likely is
on another base than it was trained on, is applied at a larger scale, or comes from a diverged run.

## Example

```yaml
kind: adapter
look: {stopped: 0, overlap: 0.01}
effect: {difference: 6.1, model: -8.0, base: -2.1, tokens: 412}
```

## Use instead

```yaml
kind: adapter
look: {stopped: 8}
effect: {difference: 0.7, model: -1.2, base: -2.1, tokens: 412}
```

## Fix safety
There is no automatic fix: load the adapter on the base model of its training (base_fingerprint.json, run.json), with
the `r`, `lora_alpha` and `use_rslora` of its training, and look at the loss of the run (`truetune diagnose`). If the
run diverged, train again with a lower learning rate.

## References

- artidoro/qlora#28, vllm-project/vllm#6909, sgl-project/sglang#40835
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import NOT_WITH_AND_WITHOUT
from truetune.checks.rule import CauseRule

# Nats a token. Chosen, not measured: another task moves references by some tenths, a wrong base or scale by several
# nats. At half, a fine-tune for another form of answers would be named; at double, a scale that is twice too large
# would pass.
MIN_NATS_WORSE = 1.0
# 95 % of Student's t with 7 degrees of freedom: a few labels that a sure model gets wrong are no damage.
STANDARD_ERRORS = 2.4


class WorseThanItsBase(CauseRule):
    code = "CAU006"
    fault = Fault.TRAINING_DOES_NOT_IMPROVE_ANSWERS
    severity = "error"
    since = "0.1.0"
    spoils = "model"
    file_rules = (
        "adapter-on-another-base",
        "adapter-rank-differs",
        "weights-changed-since-training",
        "nan-in-weights",
        "tensors-missing",
        "weights-file-broken",
        "tied-embeddings-flag-contradicts-tensors",
        "merge-is-not-base-plus-adapter",
    )

    def unmet(self) -> Unmet | None:
        return NOT_WITH_AND_WITHOUT if self.subject.effect is None else None

    def measurement_if_clean(self) -> str:
        """The loss of the references under the model and under its base."""
        effect = self.subject.effect
        assert effect is not None
        return f"the references have a loss of {-effect.model:.3g} per token, {-effect.base:.3g} under the base"

    def findings(self) -> Iterator[Finding]:
        effect = self.subject.effect
        if effect is None:
            return
        loss = effect.base - effect.model - STANDARD_ERRORS * effect.error
        # `<=` and not `>`: a loss that is NaN is the worst of all.
        if loss <= MIN_NATS_WORSE:
            return
        fault, comparison = "the model is worse than its base", "under the base"
        if self.subject.kind == "adapter":
            fault, comparison = "the adapter damages its base", "without it"
        yield self.finding(
            f"{fault}: the reference answers have a loss of {-effect.model:.3g} per token, but {-effect.base:.3g}"
            f" {comparison}",
            "load it on the base model that it was trained on (base_model_name_or_path in adapter_config.json),"
            " with the r, lora_alpha and use_rslora of its training; if that changes nothing, the training"
            " diverged: train again with a lower learning rate",
            evidence=[
                (
                    f"{effect.tokens:,} tokens; their log-probabilities differ by {effect.difference:.3g} on average"
                )
            ],
        )
