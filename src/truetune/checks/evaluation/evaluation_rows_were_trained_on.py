"""Rows that the model is measured on are among those that it was trained on.

## What it does

Looks for the rows in the data of the run that made the model, where that is recorded and still there. Such rows are
measured apart. A few (up to 1 of 20) are a note.

## Why it is bad

A model does well on what it has seen; how it does on what users ask, these rows don't tell.

## Example

```yaml
rows: 20
seen: {rows: 6}
```

## Use instead

```yaml
rows: 20
seen: {rows: 0}
```

## Fix safety

There is no automatic fix: take rows that were held out, or look at the losses of the others alone.

## References

- Sainz et al. 2023, NLP Evaluation in trouble, arXiv 2310.18018
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import EvaluationRule
from truetune.checks.unmet_reasons import NOT_KNOWN_WHAT_WAS_TRAINED

FEW = 0.05


class EvaluationRowsWereTrainedOn(EvaluationRule):
    code = "EVAL004"
    severity = "warning"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        return NOT_KNOWN_WHAT_WAS_TRAINED if self.subject.seen is None else None

    def figure(self) -> str:
        assert self.subject.seen is not None
        return f"{self.subject.seen.rows:,} of {self.subject.seen.of:,} rows were trained on"

    def findings(self) -> Iterator[Finding]:
        found = self.subject.seen
        if found is None or not found.rows:
            return
        apart = (
            [f"loss of these {found.seen.mean:.3f}, of the others {found.unseen.mean:.3f}"]
            if (found.seen and found.unseen)
            else []
        )
        file, line = found.example or (None, None)
        yield self.finding(
            f"{found.rows:,} of {found.of:,} rows were trained on",
            "measure on rows that were held out; the losses of the others stand apart in the"
            " report",
            severity="info" if found.rows <= FEW * found.of else "warning",
            evidence=apart,
            cases=[Case("one of them", file=file, line=line)] if file else [],
            count=found.rows,
            total=found.of,
        )
