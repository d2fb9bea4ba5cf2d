"""KTO's true and false examples are out of balance.

## What it does
Counts the verdicts of rows with a label, and compares the weight of each kind: desirable_weight x true against
undesirable_weight x false (both weights are 1 where the run sets none).

## Why it is bad
With one verdict alone there is nothing to tell apart: the loss saturates and answers only become more, or less, likely.
Out of balance, the rarer kind is hardly learned. The KTO paper (equation 8) and TRL recommend 1 to 4/3 for the ratio.

## Example
```yaml
data:
  - {prompt: "Is it open?", completion: " It is.", label: true}
  - {prompt: "When?", completion: " At nine.", label: true}
  - {prompt: "Where?", completion: " On the hill.", label: true}
```

## Use instead
```yaml
spec: {training: {method: kto, desirable_weight: 1.0, undesirable_weight: 2.0}}
data:
  - {prompt: "Is it open?", completion: " It is.", label: true}
  - {prompt: "When?", completion: " At nine.", label: true}
  - {prompt: "Where?", completion: " Who knows?", label: false}
```

## Fix safety
Setting one of the two weights changes nothing but the balance; change one and not both. One verdict alone is an error;
a ratio more than twice outside 1 to 4/3 a warning; more than a tenth outside a note.

## References
- huggingface/trl#1467, huggingface/trl#1734
- Ethayarajh et al. 2024, "KTO: Model Alignment as Prospect Theoretic Optimization" (arXiv 2402.01306)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement import Measurement, counted
from truetune.checks.needs import NO_VERDICTS
from truetune.checks.rule import DataRule, Setup
from truetune.encoding.batch import Batch

LOW, HIGH = 1.0, 4 / 3
NOTED, FAR = 1.1, 2.0
"""How many times outside of that range"""


class KtoImbalance(DataRule):
    code = "PREF010"
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.good = self.bad = 0
        self.ratio = 0.0
        """What the true labels weigh against the false ones"""

    def batch(self, batch: Batch) -> None:
        for row in batch.rows:
            if row.label is not None:
                self.good += row.label
                self.bad += not row.label

    def unmet(self) -> Unmet | None:
        return None if self.good + self.bad else NO_VERDICTS

    def figure(self) -> Measurement:
        weights = f" (weighed {self.ratio:.2f} to 1; recommended are 1 to 1.33)"
        return counted("labels that are true", self.good, self.good + self.bad, weights)

    def findings(self) -> Iterator[Finding]:
        total = self.good + self.bad
        if not total:
            return
        if not self.good or not self.bad:
            only, other = ("true", "false") if self.good else ("false", "true")
            yield self.finding(
                f"all {total:,} labels are {only}: there is nothing to tell apart",
                f"add examples whose label is {other}, or train on the good ones alone with SFT",
                count=total,
                total=total,
            )
            return
        training = self.spec.training
        ups, downs = training.desirable_weight, training.undesirable_weight
        up, down = 1.0 if ups is None else ups, 1.0 if downs is None else downs
        ratio = up * self.good / (down * self.bad) if down else float("inf")
        self.ratio = ratio
        off = max(LOW / ratio if ratio else float("inf"), ratio / HIGH)
        if off > NOTED:
            weights = [down * self.bad / self.good * bound for bound in (LOW, HIGH)]
            others = [up * self.good / self.bad / bound for bound in (HIGH, LOW)]
            yield self.finding(
                f"{self.good:,} true and {self.bad:,} false labels weigh {ratio:.2f} to 1;"
                " recommended are 1 to 1.33",
                f"set desirable_weight to {weights[0]:.2f} .. {weights[1]:.2f}, or"
                f" undesirable_weight to {others[0]:.2f} .. {others[1]:.2f}",
                severity="warning" if off > FAR else "info",
                evidence=[f"desirable_weight {up:g}, undesirable_weight {down:g}"],
                count=self.good,
                total=total,
            )
