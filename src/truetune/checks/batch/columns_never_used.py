"""Columns of the rows hold text, or weights, that reach no batch.

## What it does

Takes the given rows that are recognised in the real batches, and looks for the text of each of their columns there.
Weights are looked for among the columns that reach the collator. Ids, sources, scores and dates are left alone.

## Why it is bad

A `system`, `context` or `reasoning` column that nobody maps is lost without a word, and the model learns to answer
without what the answer was made from. `remove_unused_columns` takes weights away before the loss sees them.

## Example

```python
for i, row in enumerate(rows):
    row["system"] = f"You count the fruit of a shop in the harbour, which is shop {i}."
given = datasets.Dataset.from_list(rows)
run = sft(rows)
```

## Use instead

```python
for i, row in enumerate(rows):
    row["messages"].insert(0, {"role": "system", "content": f"You count the fruit of shop {i}."})
    row["source"] = f"https://example.org/the/shop/at/the/harbour/{i}.html"
given = datasets.Dataset.from_list(rows)
run = sft(rows)
```

## Fix safety

There is no automatic fix: whether a column belongs into the prompt is your decision.

## References

- hiyouga/LLaMA-Factory#7592, huggingface/transformers#43598, huggingface/trl#1186
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from truetune.auditing.audit import Audit, Sample
from truetune.checks.batch.column_texts import is_held, is_prose, plain, stands_in, texts
from truetune.checks.batch.needs import NO_ROWS
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement import Measurement, counted
from truetune.checks.rows.unused_columns import TELLING
from truetune.checks.rule import BatchRule
from truetune.errors import name_list

WEIGHTS = frozenset(
    ("weight", "weights", "loss_weight", "loss_weights", "sample_weight", "sample_weights")
)
QUIET = frozenset(("chosen", "rejected", "input_ids", "labels", "prompt_id"))
RECOGNISED = 12
"""Characters of a text by which its row is recognised"""


class ColumnsNeverUsed(BatchRule):
    code = "BAT031"
    severity = "warning"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        config = self.subject.facts["model"]["config"]
        unused = {} if config.get("is_encoder_decoder") else self._use.unused
        for severity, telling in (("warning", True), ("info", False)):
            mine = {
                name: text for name, text in unused.items() if (name.lower() in TELLING) is telling
            }
            mine = {name: text for name, text in mine.items() if telling or is_prose(text)}
            if mine:
                yield self.finding(
                    f"columns of the given rows whose text is in no batch: {name_list(mine)}",
                    "write them into the messages or the prompt, or take them out of the rows",
                    severity="warning" if severity == "warning" else "info",
                    cases=[Case(f"{name}: {text[:60]!r}") for name, text in mine.items()],
                )
        data = self.subject.facts["data"]
        given = set((data["given"] or {}).get("columns") or ()) & WEIGHTS
        keys = {
            name for record in self.subject.records for batch in record.batches for name in batch
        }
        if lost := sorted(given - set(data["used"]) - keys):
            yield self.finding(
                f"the rows have {name_list(lost)}, which reaches neither collator nor loss",
                "set remove_unused_columns=False, and use the weights in a collator and a loss of"
                " your own",
                severity="warning",
            )

    def unmet(self) -> Unmet | None:
        if (lacking := super().unmet()) is not None:
            return lacking
        if self.subject.facts["model"]["config"].get("is_encoder_decoder"):
            return Unmet("it is about decoders, and the inputs of an encoder are in other lines")
        if not any(record.rows for record in self.subject.records):
            return NO_ROWS
        return (
            None if self._use.columns else Unmet("no line was recognised as one of the given rows")
        )

    def figure(self) -> Measurement:
        more = "; they hold no prose" if self._use.unused else ""
        return counted(
            "given columns whose text is in no batch",
            len(self._use.unused),
            self._use.columns,
            more,
        )

    @cached_property
    def _use(self) -> ColumnUse:
        return column_use(self.subject)


class ColumnUse(NamedTuple):
    """What became of the columns of the given rows."""

    columns: int
    """With a text, in the rows that were recognised in the batches"""
    unused: dict[str, str]
    """Of which no text is in the lines of its row: with one of their texts"""


def column_use(audit: Audit) -> ColumnUse:
    """Which columns reach no line of the rows that are recognised."""
    lines: dict[tuple[int, int], list[str]] = {}
    for sample in audit.samples:
        if (row := _row(sample)) is not None:
            lines.setdefault((sample.rank, row), []).append(plain(sample.text(0, len(sample.ids))))
    seen = {
        re.split(r"[.\[]", sample.fields[i].path, maxsplit=1)[0]
        for sample in audit.samples
        for i in set(sample.field[sample.field >= 0].tolist())
    }
    first: dict[str, str] = {}
    for record in audit.records:
        for number, given in zip(record.facts["data"]["numbers"], record.rows, strict=True):
            if mine := lines.get((int(record.facts["rank"]), number)):
                for column, text in texts(given):
                    first.setdefault(column, text)
                    if column not in seen and any(stands_in(text, line) for line in mine):
                        seen.add(column)
    keys = {name for record in audit.records for batch in record.batches for name in batch}
    unused = {
        name: text
        for name, text in first.items()
        if name not in seen and name not in QUIET and not is_held(name, keys)
    }
    return ColumnUse(len(first), unused)


def _row(sample: Sample) -> int | None:
    """The given row of which most stands in a line; rows share phrases."""
    found: Counter[int] = Counter()
    for text in sample.fields:
        found[text.row] += len(text.text.strip())
    (row, length), *_ = found.most_common(1) or [(0, 0)]
    return row if length >= RECOGNISED else None
