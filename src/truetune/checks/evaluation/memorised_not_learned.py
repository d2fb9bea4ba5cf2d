"""Rows that were trained on are far better than rows that were not.

## What it does

Fires where the data holds 8 or more rows that the model was trained on and as many that it was not, and the loss of the
first is surely lower, and less than half of the other.

## Why it is bad

The model says its training rows by heart. A loss over both kinds looks good and says little of what users will see.

## Example

```yaml
rows: 40
seen: {rows: 20, seen: [0.2, 0.15, 0.25], unseen: [1.4, 1.2, 1.6]}
```

## Use instead

```yaml
rows: 40
seen: {rows: 2, seen: [1.2, 0.9, 1.5], unseen: [1.4, 1.2, 1.6]}
```

## Fix safety

There is no automatic fix: fewer epochs, a lower learning rate or rank, more rows, or an earlier checkpoint.

## References

- Carlini et al. 2019, The Secret Sharer, arXiv 1802.08232
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import EvaluationRule
from truetune.checks.unmet_reasons import NOT_KNOWN_WHAT_WAS_TRAINED

ENOUGH = 8
SHARE = 0.5
"""Of the loss of other rows"""


class MemorisedNotLearned(EvaluationRule):
    code = "EVAL003"
    severity = "warning"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        found = self.subject.seen
        if found is None:
            return NOT_KNOWN_WHAT_WAS_TRAINED
        rows = min((part.rows if part is not None else 0) for part in (found.seen, found.unseen))
        if rows >= ENOUGH:
            return None
        return Unmet(
            f"the data hold {found.rows:,} rows that were trained on and {found.of - found.rows:,}"
            f" others; it takes {ENOUGH} of each"
        )

    def figure(self) -> str:
        found = self.subject.seen
        assert found is not None
        assert found.seen is not None
        assert found.unseen is not None
        return (
            f"rows that were trained on have a loss of {found.seen.mean:.3f}, others one of"
            f" {found.unseen.mean:.3f}"
        )

    def findings(self) -> Iterator[Finding]:
        found = self.subject.seen
        if found is None or found.seen is None or found.unseen is None:
            return
        mine, other = found.seen, found.unseen
        if min(mine.rows, other.rows) < ENOUGH or mine.high is None or other.low is None:
            return
        if mine.high < other.low and mine.mean < SHARE * other.mean:
            yield self.finding(
                f"{mine.rows} rows that were trained on have a loss of {mine.mean:.3f},"
                f" {other.rows} others one of {other.mean:.3f}: the model knows its rows by heart",
                "train fewer epochs, at a lower learning rate, or on more rows; judge by rows that"
                " were not trained on",
                count=mine.rows,
                total=found.of,
            )
