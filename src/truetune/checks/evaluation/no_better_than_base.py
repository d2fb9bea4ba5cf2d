"""The loss on held-out rows is no better than that of the base, or is no number.

## What it does

Compares the loss of each of 8 or more rows under the model and under what it is compared with (`--against`), in pairs:
a bootstrap over rows, and a test that exchanges the two. It fires where the model is worse for sure (an error where the
other is known to be its base) and, against its base, where it is not better for sure (a warning). A difference below
0.001 nats is none. Models that were trained on preferences, as far as run.json tells, are left alone: their loss is not
the one of answers. It also fires where the loss is not a number (error), with nothing to compare
it with.

## Why it is bad

The training has given nothing that these rows show, or has done harm: a learning rate that is too high or too low, an
adapter that is not applied, rows of another kind than those that were trained on, or too few of them.

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

There is no automatic fix. `truetune diagnose` looks at the run's log, `truetune sample` at the answers.

## References

- Efron & Tibshirani 1993, An Introduction to the Bootstrap, chapter 14
- Dror et al. 2018, The Hitchhiker's Guide to Testing Statistical Significance in NLP, doi:10.18653/v1/P18-1128
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Literal

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
    severity = "error"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        """Unmet without a comparison and a loss, under another loss than that of answers, or with too few rows."""
        change = self.subject.loss_change_of_token_kind()
        if change is None or self.subject.other is None:
            return None if self.subject.model.mean_loss_of_token_kind() is not None else NOT_AGAINST
        if self.subject.method not in METHODS_WITH_ANSWER_LOSS:
            return Unmet(
                f"it was trained by {self.subject.method}, whose loss is not the one of answers"
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
                f"the loss is {change.difference:+.3f} nats/token against {other.name}"
                f" ({change.low:+.3f} to {change.high:+.3f}, p = {change.p:.2g},"
                f" {change.rows:,} rows)"
            )
        if loss is None:
            return ""
        return f"the loss is {loss.mean:.3g} nats/token; no other model was measured"

    def findings(self) -> Iterator[Finding]:
        loss = self.subject.model.mean_loss_of_token_kind()
        if loss is not None and not isfinite(loss.mean):
            yield self.finding(
                f"on {loss.rows:,} rows the loss is not a number",
                "see that the weights are whole (truetune check MODEL); take an earlier checkpoint"
                " where they are not",
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
            f"on {change.rows} rows the loss is {verdict} than that of {other.name}:"
            f" {change.difference:+.3f} nats/token ({change.low:+.3f} to {change.high:+.3f}, p ="
            f" {change.p:.2g})",
            "look at the run's log (truetune diagnose) and at the answers (truetune sample); where"
            " rows are few, add",
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
