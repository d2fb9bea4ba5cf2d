"""All processes get the same rows.

## What it does
Compares the first batches of all processes (one per GPU), id by id.

## Why it is bad
Every gradient is computed as often as there are processes. The run costs n times as much, its real batch is 1/n of the
configured one, and all metrics look normal. It happens with a loader without a distributed sampler.

## Example

```python
ranks = [torch.utils.data.DataLoader(encoded(rows), batch_size=1, collate_fn=transformers.default_data_collator)] * 2
run = model
```

## Use instead

```python
from torch.utils.data import DataLoader, DistributedSampler
data = encoded(rows)
ranks = [DataLoader(data, collate_fn=transformers.default_data_collator, sampler=DistributedSampler(data, 2, rank))
         for rank in range(2)]
run = model
```

## Fix safety
There is no automatic fix: pass the loader through `accelerator.prepare`, or give it a `DistributedSampler`. A step then
uses more rows: you may have to adapt the learning rate.

## References

- huggingface/datasets#5360, huggingface/datasets#7854
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.batch.evidence.reasons_batch_rules_cannot_judge import ONE_PROCESS
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import BatchRule
from truetune.probe.run_record import Record

SHARING_SETTINGS = (
    "parallelism_config",
    "tp_size",
    "context_parallel_size",
    "sequence_parallel_size",
    "dispatch_batches",
)
"""Settings with which processes work on one batch together, or one process hands out the batches of all"""


class SameRowsOnEveryRank(BatchRule):
    code = "BAT028"
    fault = Fault.ROWS_DIVIDED_WRONGLY_OVER_PROCESSES
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        first, *others = self.subject.records
        ids = _batch_ids(first)
        if (
            not ids
            or not others
            or self._does_one_process_read_for_all()
            or _are_all_rows_alike(ids)
        ):
            return
        same = [record for record in others if _are_batches_equal(ids, _batch_ids(record))]
        if same:
            ranks = ", ".join(str(record.facts["rank"]) for record in same)
            yield self.finding(
                f"{len(same) + 1} of {len(self.subject.records)} processes get the same rows, so they compute the same",
                "pass the loader through accelerator.prepare, or give it a DistributedSampler; for a"
                " stream use datasets.distributed.split_dataset_by_node",
                evidence=[
                    f"rank {first.facts['rank']} and rank {ranks}: {len(ids)} batches are equal id"
                    " by id"
                ],
                cases=[
                    Case(f"{sample.place}: {sample.text(0, 24)!r}")
                    for sample in self.subject.samples[:1]
                ],
                count=len(same) + 1,
                total=len(self.subject.records),
            )

    def _does_one_process_read_for_all(self) -> bool:
        """Does one process read the rows for all, by its settings or with a stream?"""
        facts = self.subject.facts
        settings = {**facts["args"], **(facts["args"].get("accelerator_config") or {})}
        stream = facts["trainer"]["kind"] != "loop" and facts["batches"][0]["indices"] is None
        return stream or any(
            settings.get(name) not in (None, False, 0, 1) for name in SHARING_SETTINGS
        )

    def unmet(self) -> Unmet | None:
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        if len(self.subject.records) == 1:
            return ONE_PROCESS
        ids = _batch_ids(self.subject.records[0])
        if not ids or self._does_one_process_read_for_all():
            return Unmet(
                "it is about processes that read their own rows, and here one may read for all"
            )
        return (
            Unmet("all rows are alike, so the processes can't be compared")
            if _are_all_rows_alike(ids)
            else None
        )

    def measurement_if_clean(self) -> Measurement:
        """How many other processes have the rows of the first."""
        return make_count_measurement(
            "other processes with the rows of the first", 0, len(self.subject.records) - 1
        )


def _batch_ids(record: Record) -> list[np.ndarray]:
    """The ids of each batch of one process."""
    return [batch["input_ids"] for batch in record.batches if "input_ids" in batch]


# Only as far as both go: one process may have seen a batch less when the audit stopped.
def _are_batches_equal(ids: list[np.ndarray], others: list[np.ndarray]) -> bool:
    """Are the batches of two processes equal, as far as both go?"""
    both = list(zip(ids, others, strict=False))
    return bool(both) and all(np.array_equal(one, other) for one, other in both)


def _are_all_rows_alike(ids: list[np.ndarray]) -> bool:
    """Would any two processes look the same, because there is one row again and again?"""
    return len({line.tobytes() for batch in ids for line in batch}) == 1
