"""Rows that were given never reach the trainer's data set.

## What it does

Compares the number of rows given with the number of rows the trainer made of them, where it does not pack.

## Why it is bad

Trainers drop rows without a word: prompts longer than the limit, rows without labels, rows that a filter does not
like. They are seldom a fair sample of the rest.

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

There is no automatic fix: raise the limit, or take the rows out yourself and count them.

## References

- huggingface/trl#6025, huggingface/trl#6320
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.batch.lines import is_packed
from truetune.checks.batch.needs import NO_ROWS
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement import Measurement, counted
from truetune.checks.rule import BatchRule

SOME = 0.01


class RowsDroppedByTrainer(BatchRule):
    code = "BAT032"
    severity = "warning"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        given, prepared = self._rows("given"), self._rows("prepared")
        if not given or prepared is None or prepared >= given or is_packed(self.subject):
            return
        every = sum(
            (record.facts["data"]["prepared"] or {}).get("rows") or 0
            for record in self.subject.records
        )
        if every == given:  # each process has its own share
            return
        dropped = given - prepared
        args = self.subject.facts["args"]
        limit = (
            args.get("max_length") or args.get("max_seq_length") or args.get("max_prompt_length")
        )
        yield self.finding(
            f"{dropped:,} of {given:,} given rows are not in the trainer's data set ({prepared:,}"
            " rows)",
            "look which rows these are: raise the length limit, or take them out before training"
            " and count them",
            severity="warning" if dropped >= SOME * given else "info",
            evidence=[f"the limit is {limit} tokens"] if limit else [],
            count=dropped,
            total=given,
        )

    def unmet(self) -> Unmet | None:
        given, prepared = self._rows("given"), self._rows("prepared")
        if (lacking := super().unmet()) is not None:
            return lacking
        if not given:
            return NO_ROWS
        if prepared is None:
            return Unmet("it is about data sets with a length, and the trainer's has none")
        return (
            Unmet("it is about lines of one row each, and these hold several")
            if is_packed(self.subject)
            else None
        )

    def figure(self) -> Measurement:
        given, prepared = self._rows("given") or 0, self._rows("prepared") or 0
        more = f" ({prepared:,} rows of this process)" if prepared < given else ""
        return counted("given rows that are not in the trainer's data set", 0, given, more)

    def _rows(self, of: str) -> int | None:
        return (self.subject.facts["data"][of] or {}).get("rows")
