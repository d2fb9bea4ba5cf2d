"""Each process takes its part of the rows, and a trainer or sampler divides that part again.

## What it does
Traces the training rows of a Trainer, a `DistributedSampler`, `accelerator.prepare`, Fabric, Lightning or
`deepspeed.initialize` back to their source, and fires if the process's rank selects a part of them: `shard(world,
rank)`, `split_dataset_by_node`, `rows[rank::world]`, `islice`, `select`, a condition with a remainder, a file that is
named after the rank. It does not fire if a hand-written loop reads the part with a plain loader, if the part is one of
a fixed number, or for trainers that make their loader themselves.

## Why it is bad
Trainers and samplers give each process (one per GPU) its share of the rows that they get. With four processes, each
then trains on a quarter of its quarter: three quarters of the rows are never used, an epoch has a quarter of its steps,
and the schedule ends that much sooner. There is no error and no warning.

## Example
```python
import os
from datasets import load_dataset
from trl import SFTTrainer

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
rows = load_dataset("json", data_files="rows.jsonl", split="train").shard(world, rank)
trainer = SFTTrainer("model", train_dataset=rows)
trainer.train()
```

## Use instead
```python
from datasets import load_dataset
from trl import SFTTrainer

rows = load_dataset("json", data_files="rows.jsonl", split="train")
trainer = SFTTrainer("model", train_dataset=rows)
trainer.train()
```

## Fix safety
There is no automatic fix: remove the split in the script, and each process gets its share of all rows. The run then has
as many times more steps as there are processes; check a schedule or a number of epochs that was chosen for the shorter
run.

## References
- huggingface/accelerate documentation, "Internals: gathering, sharding of batches" (`BatchSamplerShard`)
- pytorch/pytorch `torch.utils.data.distributed.DistributedSampler`
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.rows_sharded_twice_over_processes import (
    calls_dividing_rows,
    find_twice_divided_rows,
)


class RowsDividedTwice(SourceRule):
    code = "SRC267"
    fault = Fault.ROWS_DIVIDED_WRONGLY_OVER_PROCESSES
    symptoms = ("several-gpus", "nothing-is-learned")
    severity = "error"
    looks_at = CodePlaces("calls that divide rows among processes", calls_dividing_rows)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for twice_divided_rows in find_twice_divided_rows(module):
            yield self.finding(
                f"the rows are split between the processes twice: here, and again by {twice_divided_rows.divider};"
                " with N processes, each trains on 1/N of its 1/N, and the other rows are never used",
                f"remove the split by rank here, and pass all rows to {twice_divided_rows.divider}, which gives each"
                " process its share",
                evidence=[
                    "an epoch has 1/N of the steps that it should have: compare the rows of the file with"
                    " `Num examples` in the log"
                ],
                cases=[
                    case_of_node(module, twice_divided_rows.part),
                    case_of_node(module, twice_divided_rows.again),
                ],
            )
