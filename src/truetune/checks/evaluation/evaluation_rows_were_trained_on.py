"""Evaluation rows were in the training data.

## What it does
Looks for the evaluation rows in the data of the run that made the model, if that is recorded and still available. Such
rows are measured separately. Up to 5 % of them are an info, more a warning.

## Why it is bad
A model does well on what it has seen. These rows do not show how it does on what users ask.

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
There is no automatic fix: use rows that were held out, or look only at the losses of the other rows.

## References

- Sainz et al. 2023, NLP Evaluation in trouble, arXiv 2310.18018
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import NOT_KNOWN_WHAT_WAS_TRAINED
from truetune.checks.rule import EvaluationRule

# Chosen, not measured: short common rows stand in both sets of any task, and move a mean of losses little. At half,
# nearly every data set would be a warning; at double, a leak that shows in the score would be a note.
MAX_SHARE_OF_NOTE = 0.05


class EvaluationRowsWereTrainedOn(EvaluationRule):
    code = "EVAL004"
    fault = Fault.EVALUATION_ROWS_IN_TRAINING_DATA
    severity = "warning"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        """Unmet where it is not known which rows were trained on."""
        return NOT_KNOWN_WHAT_WAS_TRAINED if self.subject.seen is None else None

    def measurement_if_clean(self) -> str:
        """How many of the evaluation rows were trained on."""
        assert self.subject.seen is not None
        return f"{self.subject.seen.rows:,} of {self.subject.seen.of:,} rows were trained on"

    def findings(self) -> Iterator[Finding]:
        overlap = self.subject.seen
        if overlap is None or not overlap.rows:
            return
        losses = []
        if overlap.seen and overlap.unseen:
            losses.append(
                f"the loss of these rows is {overlap.seen.mean:.3f}, of the others {overlap.unseen.mean:.3f}"
            )
        file, line = overlap.example or (None, None)
        yield self.finding(
            f"{overlap.rows:,} of {overlap.of:,} rows were trained on",
            "evaluate on rows that were held out (--data); the report lists the losses of the other rows separately",
            severity="info" if overlap.rows <= MAX_SHARE_OF_NOTE * overlap.of else "warning",
            evidence=losses,
            cases=[Case("one of them", file=file, line=line)] if file else [],
            count=overlap.rows,
            total=overlap.of,
        )
