"""Some of the given rows never reach the trainer's data set.

## What it does
Compares the number of rows given with the number of rows that the trainer made of them, if it does not pack. It is a
warning from 1 % on, else info.

## Why it is bad
Trainers drop rows without a message: prompts longer than the limit, rows without labels, rows that a filter rejects.
They are seldom a random sample of the rest.

## Example

```python
def long(n):
    return [{"role": "user", "content": "why " * 200 * n + "?"}], [{"role": "assistant", "content": "Yes."}]

given = datasets.Dataset.from_list([{"prompt": p, "completion": c} for p, c in map(long, (0, 0, 0, 1))])
run = sft(given.to_list(), max_length=64)
```

## Use instead

```python
def long(n):
    return [{"role": "user", "content": "why " * 200 * n + "?"}], [{"role": "assistant", "content": "Yes."}]

given = datasets.Dataset.from_list([{"prompt": p, "completion": c} for p, c in map(long, (0, 0, 0, 0))])
run = sft(given.to_list(), max_length=64)
```

## Fix safety
There is no automatic fix: raise the limit (more memory), or remove the rows yourself and count them.

## References

- huggingface/trl#6025, huggingface/trl#6320
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.batch.evidence.documents_in_batch_lines import are_batches_packed
from truetune.checks.batch.evidence.reasons_batch_rules_cannot_judge import NO_ROWS
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import BatchRule

# Chosen, not measured: filters take some rows out of any large set; from a hundredth on it is worth
# to see which.
WARNING_SHARE = 0.01
"""Share of the rows from which it is a warning"""


class RowsDroppedByTrainer(BatchRule):
    code = "BAT032"
    fault = Fault.ROWS_MISSING_FROM_TRAINING
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        before, prepared = self._count_rows("given"), self._count_rows("prepared")
        if not before or prepared is None or prepared >= before or are_batches_packed(self.subject):
            return
        tables = [record.facts["data"]["prepared"] or {} for record in self.subject.records]
        if sum(table.get("rows") or 0 for table in tables) == before:
            return  # each process has its own share
        dropped = before - prepared
        yield self.finding(
            f"{dropped:,} of {before:,} given rows are not in the trainer's data set ({prepared:,}"
            " rows)",
            "find these rows (truetune check DATA -t TOKENIZER --max-length LIMIT lists those that are too long): raise"
            " max_length, or remove them before training",
            severity="warning" if dropped >= WARNING_SHARE * before else "info",
            evidence=self._evidence_of_length_limit(),
            count=dropped,
            total=before,
        )

    def _evidence_of_length_limit(self) -> list[str]:
        """The limit that may have dropped them, as evidence."""
        args = self.subject.facts["args"]
        names = ("max_length", "max_seq_length", "max_prompt_length")
        limit = next((args[name] for name in names if args.get(name)), None)
        return [f"the limit is {limit} tokens"] if limit else []

    def unmet(self) -> Unmet | None:
        rows_before, prepared = self._count_rows("given"), self._count_rows("prepared")
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        if not rows_before:
            return NO_ROWS
        if prepared is None:
            return Unmet("it is about data sets with a length, and the trainer's has none")
        return (
            Unmet("it is about lines of one row each, and these hold several")
            if are_batches_packed(self.subject)
            else None
        )

    def measurement_if_clean(self) -> Measurement:
        """How many given rows are not in the trainer's data set."""
        rows_before, prepared = self._count_rows("given") or 0, self._count_rows("prepared") or 0
        more = f" ({prepared:,} rows of this process)" if prepared < rows_before else ""
        return make_count_measurement(
            "given rows that are not in the trainer's data set", 0, rows_before, more
        )

    def _count_rows(self, of: str) -> int | None:
        """Rows of a data set, `given` or `prepared`; None where it has no length."""
        return (self.subject.facts["data"][of] or {}).get("rows")
