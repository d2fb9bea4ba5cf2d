"""Processes have different numbers of batches, or batches with different keys.

## What it does
Compares how many of the first batches each process (one per GPU) has, and which keys they contain.

## Why it is bad
The process with one batch more waits for the others at the next exchange of gradients: the run hangs, at the end of the
epoch or at once. Keys that only some processes have lead to different losses.

## Example

```python
ranks = [torch.utils.data.DataLoader(encoded(rows[:n]), collate_fn=transformers.default_data_collator) for n in (4, 3)]
run = model
```

## Use instead

```python
ranks = [torch.utils.data.DataLoader(encoded(rows[n : n + 4]), collate_fn=transformers.default_data_collator)
         for n in (0, 4)]
run = model
```

## Fix safety
There is no automatic fix: `even_batches`, `split_batches` or `drop_last` make the numbers equal. `even_batches` repeats
some rows, `drop_last` leaves some out.

## References

- huggingface/datasets#6437, huggingface/transformers#26724, huggingface/accelerate#2536
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.batch.evidence.reasons_batch_rules_cannot_judge import ONE_PROCESS
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import BatchRule
from truetune.errors import format_name_list


class RanksOutOfStep(BatchRule):
    code = "BAT029"
    fault = Fault.PROCESSES_WAIT_FOR_EACH_OTHER
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        records = [record for record in self.subject.records if record.batches]
        counts = {record.facts["rank"]: len(record.batches) for record in self.subject.records}
        if records and len(set(counts.values())) > 1:
            yield self.finding(
                f"{len(counts)} processes have {min(counts.values())} to {max(counts.values())}"
                " batches: those with more wait forever",
                "pass the loader through accelerator.prepare (even_batches=True), or set drop_last=True in the"
                " DataLoader",
                cases=[Case(f"rank {rank}: {count} batches") for rank, count in counts.items()],
            )
        keys = {record.facts["rank"]: set(record.batches[0]) for record in records}
        differing = _keys_not_in_all(list(keys.values()))
        if differing:
            yield self.finding(
                f"only some processes have {format_name_list(sorted(differing))} in their batches",
                "give all processes the same columns: prepare the whole data set before you"
                " split it",
                cases=[
                    Case(f"rank {rank}: {format_name_list(sorted(names))}")
                    for rank, names in keys.items()
                ],
            )

    def unmet(self) -> Unmet | None:
        return super().unmet() or (ONE_PROCESS if len(self.subject.records) == 1 else None)

    def measurement_if_clean(self) -> str:
        """The number of processes, and of the batches that each of them has."""
        records = self.subject.records
        return (
            f"{len(records)} processes with {len(records[0].batches)} batches each, with the same"
            " keys"
        )


def _keys_not_in_all(sets: list[set[str]]) -> set[str]:
    """The keys that are in one of these sets and not in all of them."""
    everywhere = {name for names in sets for name in names}
    return {name for name in everywhere if not all(name in names for names in sets)}
