"""Rows are drawn again before others had their turn, or in the order of the file.

## What it does

Looks at the numbers of the rows in the first batches of one process: does one come back although most have not come
yet, and are they just 0, 1, 2, ... ?

## Why it is bad

A sampler that repeats rows trains some of them often and others never. Rows in the file's order come source by source,
where the file is sorted. Both may be wanted: that is why this is information alone.

## Example

```python
data = encoded(chats(64))
draw = torch.utils.data.RandomSampler(range(3), replacement=True, num_samples=64)
loader = torch.utils.data.DataLoader(data, sampler=draw, batch_size=2,
                                     collate_fn=transformers.DataCollatorForSeq2Seq(tokenizer))
run = model
```

## Use instead

```python
loader = torch.utils.data.DataLoader(encoded(chats(64)), shuffle=True, batch_size=2,
                                     collate_fn=transformers.DataCollatorForSeq2Seq(tokenizer))
run = model
```

## Fix safety

There is no automatic fix.

## References

- huggingface/datasets#5961, huggingface/datasets#8565
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, count_measurement
from truetune.checks.rule import BatchRule

# Twelve rows are in the order of the file by chance once in 479 million draws (12!); audits see a
# few batches only.
MIN_ROWS = 12
"""Rows drawn from which an order says something"""
MIN_TIMES_AS_MANY_ROWS = 4
"""So many times as many rows as are drawn: no epoch ends among them"""
# Drawn with replacement, of n rows out of 4 n about an eighth comes again: a quarter is a sampler
# that prefers some.
REPEATED_SHARE = 0.25
"""Share of the rows drawn that came before"""


class RowsNotDrawnAtRandom(BatchRule):
    code = "BAT030"
    symptoms = ("odd-metrics",)
    severity = "info"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        drawn, rows = self._drawn_rows, self._count_dataset_rows
        if len(drawn) < MIN_ROWS or rows < MIN_TIMES_AS_MANY_ROWS * len(drawn):
            return
        again = len(drawn) - len(set(drawn))
        if again >= REPEATED_SHARE * len(drawn):
            yield self.finding(
                f"{again} of the first {len(drawn)} rows drawn came before, of {rows:,} rows",
                "draw without replacement, if all rows are to be seen",
                cases=[Case(f"rows {', '.join(map(str, drawn[:16]))}, ...")],
                count=again,
                total=len(drawn),
            )
        elif drawn == list(range(len(drawn))) and not self._is_order_chosen():
            yield self.finding(
                f"the first {len(drawn)} rows come in the order of the data set, which has"
                f" {rows:,}",
                "shuffle, unless the rows are in an order that you chose",
                cases=[Case(f"rows {', '.join(map(str, drawn[:16]))}, ...")],
            )

    def _is_order_chosen(self) -> bool:
        """Did the trainer shuffle the rows before, or was an order asked for?"""
        args = self.subject.facts["args"]
        order_setting = (
            args.get("shuffle_dataset")
            or args.get("group_by_length")
            or args.get("curriculum_sampling")
        )
        return bool(order_setting) or args.get("train_sampling_strategy") in (
            "sequential",
            "group_by_length",
        )

    def unmet(self) -> Unmet | None:
        drawn = len(self._drawn_rows)
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        if not drawn:
            return Unmet(
                "it is not known which rows were drawn", "give the trainer a data set with a length"
            )
        if drawn < MIN_ROWS:
            return Unmet(
                f"{drawn} rows were drawn, and it takes {MIN_ROWS}", "audit more (--batches)"
            )
        return (
            Unmet(f"{drawn} rows were drawn of {self._count_dataset_rows:,}: too few rows")
            if self._count_dataset_rows < MIN_TIMES_AS_MANY_ROWS * drawn
            else None
        )

    def figure(self) -> Measurement:
        """How many drawn rows had been drawn before."""
        again = len(self._drawn_rows) - len(set(self._drawn_rows))
        return count_measurement("drawn rows that came before", again, len(self._drawn_rows))

    @cached_property
    def _drawn_rows(self) -> list[int]:
        """Numbers of the rows, in the order in which they were drawn."""
        return [i for batch in self.subject.facts["batches"] for i in batch["indices"] or ()]

    @property
    def _count_dataset_rows(self) -> int:
        """The number of rows in the trainer's data set."""
        return (self.subject.facts["data"]["prepared"] or {}).get("rows") or 0
