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

from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import EvaluationRule
from truetune.checks.unmet_reasons import NOT_AGAINST

ENOUGH = 8
LEAST = 0.001
"""Nats"""
SURE = 0.05
"""Largest p of a difference that is there"""


class NoBetterThanBase(EvaluationRule):
    code = "EVAL001"
    severity = "error"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        change = self.subject.change()
        if change is None or self.subject.other is None:
            return None if self.subject.model.loss() is not None else NOT_AGAINST
        if self.subject.method not in (None, "sft"):
            return Unmet(
                f"it was trained by {self.subject.method}, whose loss is not the one of answers"
            )
        if change.rows < ENOUGH or change.low is None or change.high is None:
            return Unmet(
                f"{change.rows:,} rows were measured, and it takes {ENOUGH}",
                "name more rows with --data",
            )
        return None

    def figure(self) -> str:
        change, other, loss = self.subject.change(), self.subject.other, self.subject.model.loss()
        if change is None or other is None:
            return (
                ""
                if loss is None
                else f"the loss is {loss.mean:.3g} nats a token; no other model was measured"
            )
        return (
            f"the loss is {change.difference:+.3f} nats a token against {other.name}"
            f" ({change.low:+.3f} to {change.high:+.3f}, p = {change.p:.2g}, {change.rows:,} rows)"
        )

    def findings(self) -> Iterator[Finding]:
        loss = self.subject.model.loss()
        if loss is not None and not isfinite(loss.mean):
            yield self.finding(
                f"on {loss.rows:,} rows the loss is not a number",
                "see that the weights are whole (truetune check MODEL); take an earlier checkpoint"
                " where they are not",
            )
            return
        change, other = self.subject.change(), self.subject.other
        if (
            change is None
            or other is None
            or change.low is None
            or change.high is None
            or change.rows < ENOUGH
        ):
            return
        if self.subject.method not in (None, "sft"):
            return
        if abs(change.difference) < LEAST and not self.subject.is_base:
            return
        worse, better = (
            change.p < SURE and edge * sign > 0
            for edge, sign in ((change.low, 1), (change.high, -1))
        )
        if better or not (worse or self.subject.is_base):
            return
        yield self.finding(
            f"on {change.rows} rows the loss is {'worse' if worse else 'not surely better'} than"
            f" that of {other.name}: {change.difference:+.3f} nats a token ({change.low:+.3f} to"
            f" {change.high:+.3f}, p = {change.p:.2g})",
            "look at the run's log (truetune diagnose) and at the answers (truetune sample); where"
            " rows are few, add",
            severity="error" if worse and self.subject.is_base else "warning",
        )
