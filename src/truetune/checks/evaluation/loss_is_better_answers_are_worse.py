"""The loss is lower than the other model's, but the answers are worse.

## What it does
Fires if the loss on the same rows is significantly lower than that of the model it is compared with (`--against`), but
significantly more answers are right only under that model than only under this one (McNemar's exact test, p < 0.05).

## Why it is bad
The loss is computed after the reference's own words; an answer continues the model's own words. A model can learn the
style of its rows, and lose knowledge or the ability to stop. Choosing by the loss would choose the worse model.

## Example

```yaml
rows: 40
other: base
changes: {all: [-0.42, -0.6, -0.25, 0.001]}
agreements:
  - {measure: read by number, both: 10, only_this: 1, only_other: 14, neither: 15}
```

## Use instead

```yaml
rows: 40
other: base
changes: {all: [-0.42, -0.6, -0.25, 0.001]}
agreements:
  - {measure: read by number, both: 10, only_this: 14, only_other: 1, neither: 15}
```

## Fix safety
There is no automatic fix: look at the answers side by side (`truetune sample --against`), and select checkpoints by
their answers.

## References

- McNemar 1947, doi:10.1007/BF02295996
- Holtzman et al. 2020, The Curious Case of Neural Text Degeneration, arXiv 1904.09751
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import NOT_AGAINST
from truetune.checks.rule import EvaluationRule

# The usual level of a test. Both the loss and the answers have to pass it, so that chance does it once in 400 runs.
MAX_P = 0.05


class LossIsBetterAnswersAreWorse(EvaluationRule):
    code = "EVAL010"
    fault = Fault.TRAINING_DOES_NOT_IMPROVE_ANSWERS
    severity = "warning"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        """Unmet where no other model was measured, or the models were asked nothing."""
        if self.subject.other is None or self.subject.loss_change_of_token_kind() is None:
            return NOT_AGAINST
        if self.subject.agreements:
            return None
        return Unmet("neither model generated answers", "generate some with --answers N")

    def measurement_if_clean(self) -> str:
        """The difference of the losses, and how many answers are right under one model alone."""
        change = self.subject.loss_change_of_token_kind()
        assert change is not None
        alone = (
            f"{a.only_this} right only here, {a.only_other} only there ({a.measure})"
            for a in self.subject.agreements
        )
        return f"the loss per token differs by {change.difference:+.3f}; {'; '.join(alone)}"

    def findings(self) -> Iterator[Finding]:
        change, other = self.subject.loss_change_of_token_kind(), self.subject.other
        if change is None or other is None or change.high is None:
            return
        if change.high >= 0 or change.p >= MAX_P:
            return
        for agreement in self.subject.agreements:
            if agreement.only_other <= agreement.only_this or agreement.p >= MAX_P:
                continue
            yield self.finding(
                f"the loss per token is {-change.difference:.3f} lower than that of {other.name}, but the answers"
                f" are worse ({agreement.measure}): {agreement.only_other} are right only there,"
                f" {agreement.only_this} only here",
                "compare both models' answers (truetune sample --against), and select checkpoints by their answers,"
                " not by the loss",
                evidence=[
                    f"p = {agreement.p:.2g}; both are right {agreement.both} times, neither"
                    f" {agreement.neither}"
                ],
                count=agreement.only_other,
                total=(
                    agreement.both + agreement.only_this + agreement.only_other + agreement.neither
                ),
            )
