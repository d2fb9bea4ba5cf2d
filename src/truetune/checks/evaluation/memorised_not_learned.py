"""Rows that were trained on have a far lower loss than other rows.

## What it does
Fires if the data contains 8 or more rows that the model was trained on and as many that it was not, and the loss of the
former is significantly lower, and less than half of the latter.

## Why it is bad
The model has memorised its training rows. A loss over both kinds looks good and does not show what users will see.

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
There is no automatic fix: train fewer epochs, with a lower learning rate or LoRA rank, or on more rows; or use an
earlier checkpoint.

## References

- Carlini et al. 2019, The Secret Sharer, arXiv 1802.08232
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import NOT_KNOWN_WHAT_WAS_TRAINED
from truetune.checks.rule import EvaluationRule

# Rows of each kind: with fewer a bootstrap over rows says nothing of its edges.
MIN_ROWS = 8
# Of the loss of other rows. Chosen, not measured: any training makes its own rows a little likelier. At 0.75 healthy
# runs of a few epochs would be named, at 0.25 only those that know their rows word for word.
MAX_SHARE_OF_OTHER_LOSS = 0.5


class MemorisedNotLearned(EvaluationRule):
    code = "EVAL003"
    fault = Fault.MODEL_MEMORISES_ITS_ROWS
    severity = "warning"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        """Unmet where it is not known what was trained, or too few rows were trained on or were not."""
        overlap = self.subject.seen
        if overlap is None:
            return NOT_KNOWN_WHAT_WAS_TRAINED
        parts = (overlap.seen, overlap.unseen)
        rows = min((part.rows if part is not None else 0) for part in parts)
        if rows >= MIN_ROWS:
            return None
        return Unmet(
            f"the data contains {overlap.rows:,} rows that were trained on and {overlap.of - overlap.rows:,} others;"
            f" {MIN_ROWS} of each are needed"
        )

    def measurement_if_clean(self) -> str:
        """The loss of rows that were trained on, beside that of the others."""
        overlap = self.subject.seen
        assert overlap is not None
        assert overlap.seen is not None
        assert overlap.unseen is not None
        return (
            f"rows that were trained on have a loss of {overlap.seen.mean:.3f}, others one of"
            f" {overlap.unseen.mean:.3f}"
        )

    def findings(self) -> Iterator[Finding]:
        overlap = self.subject.seen
        if overlap is None or overlap.seen is None or overlap.unseen is None:
            return
        trained, other = overlap.seen, overlap.unseen
        if min(trained.rows, other.rows) < MIN_ROWS:
            return
        if trained.high is None or other.low is None:
            return
        # Both: surely apart, and far apart. Many rows make a small difference sure.
        is_surely_lower = trained.high < other.low
        if is_surely_lower and trained.mean < MAX_SHARE_OF_OTHER_LOSS * other.mean:
            yield self.finding(
                f"{trained.rows} rows that were trained on have a loss of {trained.mean:.3f}, {other.rows} others"
                f" one of {other.mean:.3f}: the model has memorised its rows",
                "train fewer epochs, with a lower learning rate, or on more rows, or use an earlier checkpoint;"
                " evaluate on rows that were not trained on",
                count=trained.rows,
                total=overlap.of,
            )
