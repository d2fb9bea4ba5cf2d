"""Rows are sampled again before others were used, or in the order of the file.

## What it does
Reads the numbers of the rows in the first batches of one process: does one come back although most have not been used,
and are they just 0, 1, 2, ... ? Both are info; where half of the draws or more are repeats, it warns. In a hand-written
loop, whose loader gives no numbers, it compares the batches: if all of them are the same, id by id, it warns.

## Why it is bad
A sampler that repeats rows trains on some of them often and on others never. Rows in the file's order come source by
source, if the file is sorted. Both may be intended. A loop that trains each step on the same batch, as with
`next(iter(loader))` in its body, memorises that batch and never sees the rest.

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
There is no automatic fix: `DataLoader(..., shuffle=True)` uses each row once per epoch in random order. Keep an order
that you chose on purpose (a curriculum).

## References

- huggingface/datasets#5961, huggingface/datasets#8565
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
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
# Weights of a sampler that prefers some rows make a quarter of the draws repeats. Half of them repeats are draws from
# fewer rows than are drawn, while at least four times as many are there: most rows are never learned.
SMALL_CIRCLE_SHARE = 0.5
"""Share of repeats from which it is a warning"""
MIN_BATCHES = 4
"""Batches of an own loop that are compared: chosen, not measured. Two passes over one batch may be one step"""


class RowsNotDrawnAtRandom(BatchRule):
    code = "BAT030"
    fault = Fault.ROWS_IN_FIXED_ORDER
    symptoms = ("odd-metrics",)
    severity = "info"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        if self._batch_ids_of_custom_loop:
            yield from self._finding_on_equal_batches()
            return
        drawn, rows = self._drawn_rows, self._count_dataset_rows
        if len(drawn) < MIN_ROWS or rows < MIN_TIMES_AS_MANY_ROWS * len(drawn):
            return
        again = len(drawn) - len(set(drawn))
        if again >= REPEATED_SHARE * len(drawn):
            is_small_circle = again >= SMALL_CIRCLE_SHARE * len(drawn)
            yield self.finding(
                f"{again} of the first {len(drawn)} sampled rows are repeats, out of {rows:,} rows",
                "sample without replacement (DataLoader(shuffle=True)) if every row should be used",
                severity="warning" if is_small_circle else "info",
                cases=[Case(f"rows {', '.join(map(str, drawn[:16]))}, ...")],
                count=again,
                total=len(drawn),
            )
        elif drawn == list(range(len(drawn))) and not self._is_order_chosen():
            yield self.finding(
                f"the first {len(drawn)} rows come in the order of the data set, which has"
                f" {rows:,}",
                "shuffle (DataLoader(shuffle=True)), unless you chose this order on purpose",
                cases=[Case(f"rows {', '.join(map(str, drawn[:16]))}, ...")],
            )

    def _finding_on_equal_batches(self) -> Iterator[Finding]:
        """The finding on a loop whose batches are all the same."""
        batches = self._batch_ids_of_custom_loop
        if self._count_batches_like_first < len(batches):
            return
        lines = len(batches[0])
        yield self.finding(
            f"all {len(batches)} batches are the same {lines} sequences: the loop sees no other rows",
            "create the iterator before the loop (for batch in loader:, not next(iter(loader)) in its body), unless you"
            " test whether the model can memorise one batch",
            severity="warning",
            cases=[Case(f"{one.place}: {one.text(0, 24)!r}") for one in self.subject.samples[:1]],
            count=len(batches),
            total=len(batches),
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
        if self._batch_ids_of_custom_loop:
            return None
        if not drawn:
            return Unmet(
                "it is not known which rows were sampled",
                "give the trainer a data set with a length",
            )
        if drawn < MIN_ROWS:
            return Unmet(
                f"{drawn} rows were sampled, and it takes {MIN_ROWS}", "audit more (--batches)"
            )
        return (
            Unmet(f"{drawn} rows of {self._count_dataset_rows:,} were sampled: too few rows")
            if self._count_dataset_rows < MIN_TIMES_AS_MANY_ROWS * drawn
            else None
        )

    def measurement_if_clean(self) -> Measurement:
        """How many drawn rows had been drawn before, or how many batches are as the first."""
        if self._batch_ids_of_custom_loop:
            others = len(self._batch_ids_of_custom_loop) - 1
            return make_count_measurement(
                "later batches like the first", self._count_batches_like_first - 1, others
            )
        again = len(self._drawn_rows) - len(set(self._drawn_rows))
        return make_count_measurement("sampled rows that are repeats", again, len(self._drawn_rows))

    @cached_property
    def _batch_ids_of_custom_loop(self) -> list[np.ndarray]:
        """The ids of the batches of a hand-written loop, where enough were seen with labels; else none.

        A loop that learns from its own samples gives the model no labels, and takes them several times.
        """
        if self.subject.facts["trainer"]["kind"] != "loop" or self._drawn_rows:
            return []
        batches = self.subject.records[0].batches
        ids = [one["input_ids"] for one in batches if "input_ids" in one and "labels" in one]
        return ids if len(ids) == len(batches) >= MIN_BATCHES else []

    @property
    def _count_batches_like_first(self) -> int:
        """The number of batches with the ids of the first, itself too."""
        first = self._batch_ids_of_custom_loop[0]
        return sum(np.array_equal(first, one) for one in self._batch_ids_of_custom_loop)

    @cached_property
    def _drawn_rows(self) -> list[int]:
        """Numbers of the rows, in the order in which they were drawn."""
        return [i for batch in self.subject.facts["batches"] for i in batch["indices"] or ()]

    @property
    def _count_dataset_rows(self) -> int:
        """The number of rows in the trainer's data set."""
        return (self.subject.facts["data"]["prepared"] or {}).get("rows") or 0
