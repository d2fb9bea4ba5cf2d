"""The loss on held-out rows is no better than the base model's, or is not a number.

## What it does
Compares the loss of each of 8 or more rows under the model and under the other model (`--against`), in pairs: a
bootstrap over rows, and a permutation test. It fires if the model is significantly worse (an error if the other is
known to be its base, otherwise a warning). Compared with its base, it also fires if the model is not significantly
better (a warning). Against another model, a difference below 0.001 per token does not count. Models that were trained
on preferences, according to run.json, are ignored: their loss is not that of answers. It also fires if the loss is not
a number (error), without any comparison.

## Why it is bad
The training changed nothing that these rows show, or did harm: the learning rate is too high or too low, the adapter is
not applied, or the rows are of another kind than the training rows, or too few.

## Example

```yaml
rows: 20
other: base
changes: {all: [0.31, 0.12, 0.5, 0.001]}
```

## Use instead

```yaml
rows: 20
other: base
changes: {all: [-0.42, -0.6, -0.25, 0.001]}
```

## Fix safety
There is no automatic fix. `truetune diagnose` checks the run's log, `truetune sample` the answers.

## References

- Efron & Tibshirani 1993, An Introduction to the Bootstrap, chapter 14
- Dror et al. 2018, The Hitchhiker's Guide to Testing Statistical Significance in NLP, doi:10.18653/v1/P18-1128
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Literal

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import NOT_AGAINST
from truetune.checks.rule import EvaluationRule
from truetune.generation.evaluation_loss_and_score_types import LossChange, ModelMeasurements

# Rows: an exchange test of 8 pairs can reach p = 0.008; of 4 pairs never below 0.12.
MIN_ROWS = 8
# Nats a token. Chosen, not measured: two loads of one model in bf16 differ by some ten-thousandths. At half, these
# would count; at 0.01 a slow run's real gain would not.
MIN_DIFFERENCE = 0.001
# The usual level of a test: the largest p of a difference that is there.
MAX_P = 0.05
# Methods whose loss is the one of answers; preferences and rewards have others.
METHODS_WITH_ANSWER_LOSS = (None, "sft")


class NoBetterThanBase(EvaluationRule):
    code = "EVAL001"
    fault = Fault.TRAINING_DOES_NOT_IMPROVE_ANSWERS
    severity = "error"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        """Unmet without a comparison and a loss, under another loss than that of answers, or with too few rows."""
        change = self.subject.loss_change_of_token_kind()
        if change is None or self.subject.other is None:
            return None if self.subject.model.mean_loss_of_token_kind() is not None else NOT_AGAINST
        if self.subject.method not in METHODS_WITH_ANSWER_LOSS:
            return Unmet(
                f"it was trained with {self.subject.method}, whose loss is not that of answers"
            )
        if change.rows < MIN_ROWS or change.low is None or change.high is None:
            return Unmet(
                f"{change.rows:,} rows were measured, and it takes {MIN_ROWS}",
                "name more rows with --data",
            )
        return None

    def measurement_if_clean(self) -> str:
        """The difference of the loss to the other model's; the loss alone where no other was measured."""
        change, other, loss = (
            self.subject.loss_change_of_token_kind(),
            self.subject.other,
            self.subject.model.mean_loss_of_token_kind(),
        )
        if change is not None and other is not None:
            return (
                f"the loss per token differs by {change.difference:+.3f} from {other.name} ({change.low:+.3f} to"
                f" {change.high:+.3f}, p = {change.p:.2g}, {change.rows:,} rows)"
            )
        if loss is None:
            return ""
        return f"the loss is {loss.mean:.3g} per token; no other model was measured"

    def findings(self) -> Iterator[Finding]:
        loss = self.subject.model.mean_loss_of_token_kind()
        if loss is not None and not isfinite(loss.mean):
            yield self.finding(
                f"the loss on {loss.rows:,} rows is not a number (NaN)",
                "check the weights for NaN (truetune check MODEL); if they have some, use an earlier checkpoint and"
                " train on with a lower learning rate",
            )
            return
        change, other = self.subject.loss_change_of_token_kind(), self.subject.other
        if self.unmet() is None and change is not None and other is not None:
            yield from self._finding_if_not_better_than_other(change, other)

    def _finding_if_not_better_than_other(
        self, change: LossChange, other: ModelMeasurements
    ) -> Iterator[Finding]:
        """The finding on a loss that is not better than that of the other model."""
        # Against its base a difference of nothing is the finding itself; against another model it is none.
        is_base = self.subject.is_base
        if not is_base and abs(change.difference) < MIN_DIFFERENCE:
            return
        verdict = _verdict_on_change(change)
        is_worse = verdict == "worse"
        if verdict == "better" or not (is_worse or is_base):
            return
        yield self.finding(
            f"the loss on {change.rows} rows is {verdict} than that of {other.name}: {change.difference:+.3f} per"
            f" token (95 % interval {change.low:+.3f} to {change.high:+.3f}, p = {change.p:.2g})",
            "check the run's log (truetune diagnose RUN) for a learning rate that is too high or too low, and that"
            " the adapter is applied (truetune check MODEL); with few evaluation rows, add more (--data)",
            severity="error" if is_worse and is_base else "warning",
        )


def _verdict_on_change(
    change: LossChange,
) -> Literal["better", "worse", "not significantly better"]:
    """Whether the loss changed for sure: the test, and the interval of the bootstrap, have to agree."""
    if change.p >= MAX_P:
        return "not significantly better"
    if change.low is not None and change.low > 0:
        return "worse"
    is_better = change.high is not None and change.high < 0
    return "better" if is_better else "not significantly better"
