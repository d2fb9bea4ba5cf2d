"""It is the base model that answers: the training has no effect on it.

## What it does
Compares the log-probabilities of the tokens of some reference answers under the model (a folder, a GGUF file or a
server) and under its base. It fires if they are exactly equal: an error if there is a record of a training run,
otherwise a warning.

## Why it is bad
The trained weights were not merged, not saved or not loaded, or the server answers under the base's name. Every
evaluation then measures the base model.

## Example

```yaml
kind: endpoint
run: true
look: {stopped: 1}
effect: {difference: 0, model: -2.1, base: -2.1, tokens: 412}
```

## Use instead

```yaml
kind: endpoint
run: true
look: {stopped: 8}
effect: {difference: 0.7, model: -1.2, base: -2.1, tokens: 412}
```

## Fix safety
There is no automatic fix: request the model by the adapter's name, merge before saving, and compare the files
(`truetune check MODEL --base BASE`).

## References

- vllm-project/vllm#11406, vllm-project/vllm#34186
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import NOT_WITH_AND_WITHOUT
from truetune.checks.rule import CauseRule

# Nats a token: equal computations give 0, and the sum over many tokens may leave its rounding.
MAX_NATS_OF_SAME_WEIGHTS = 1e-6


class ModelIsTheBase(CauseRule):
    code = "CAU008"
    fault = Fault.BASE_ANSWERS_INSTEAD_OF_TUNED_MODEL
    symptoms = ("nothing-is-learned",)
    severity = "error"
    since = "0.1.0"
    spoils = "model"
    file_rules = ("weights-equal-the-base",)

    def unmet(self) -> Unmet | None:
        if self.subject.kind == "adapter":
            return Unmet("it is about whole models")
        return NOT_WITH_AND_WITHOUT if self.subject.effect is None else None

    def measurement_if_clean(self) -> str:
        """How much the tokens of the references differ from the base's, in nats each."""
        effect = self.subject.effect
        assert effect is not None
        return (
            f"{effect.tokens:,} reference tokens differ from the base's by {effect.difference:.2g} in"
            " log-probability on average"
        )

    def findings(self) -> Iterator[Finding]:
        effect = self.subject.effect
        if (
            self.subject.kind == "adapter"
            or effect is None
            or not effect.difference <= MAX_NATS_OF_SAME_WEIGHTS
        ):
            return
        yield self.finding(
            "it is the base model that answers: the reference answers have exactly the same probability under it,"
            " so nothing of the training is used",
            "merge or load the trained weights (truetune check MODEL --base BASE compares the files); on a server,"
            " request the model by the adapter's name",
            severity="error" if self.subject.run else "warning",
            evidence=[f"log-probabilities of {effect.tokens:,} tokens were compared"],
        )
