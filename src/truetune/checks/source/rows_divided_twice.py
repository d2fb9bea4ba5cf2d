"""Each process takes its part of the rows, and a trainer or a sampler divides that part once more.

## What it does
Follows the training rows of a Trainer, a `DistributedSampler`, `accelerator.prepare`, Fabric, Lightning or
`deepspeed.initialize` back to where they come from, and fires where the number of the process chooses a part of them:
`shard(world, rank)`, `split_dataset_by_node`, `rows[rank::world]`, `islice`, `select`, a condition with a remainder, a
file that is named by the rank. Silent where a loop of one's own reads the part with a plain loader, where the part is
one of a fixed number, and for trainers that make their loader themselves.

## Why it is bad
Trainers and samplers give each process its share of the rows that it has. Of four processes, each then trains on a
quarter of its quarter: three quarters of the rows are never seen, an epoch has a quarter of its steps, and the schedule
ends that much sooner. No error and no warning says it.

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
There is no automatic fix: take out the division of the script, and each process sees its share of all rows. The run has
as many times the steps then; a schedule or a number of epochs that was chosen for the shorter run goes with it.

## References
- huggingface/accelerate documentation, "Internals: gathering, sharding of batches" (`BatchSamplerShard`)
- pytorch/pytorch `torch.utils.data.distributed.DistributedSampler`
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.rows_sharded_twice_over_processes import (
    calls_dividing_rows,
    find_twice_divided_rows,
)


class RowsDividedTwice(SourceRule):
    code = "SRC267"
    symptoms = ("several-gpus", "nothing-is-learned")
    severity = "error"
    looks_at = CodePlaces("calls that divide rows among processes", calls_dividing_rows)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for found in find_twice_divided_rows(module):
            yield self.finding(
                f"the rows are divided among the processes twice: here, and once more by {found.divider}; of N"
                " processes, each trains on 1/N of its 1/N, and the other rows are never seen",
                f"take the division by rank out, and give {found.divider} all rows: it gives each process its share",
                evidence=[
                    "an epoch has 1/N of the steps that it should have: compare the rows of the file with"
                    " `Num examples` in the log"
                ],
                cases=[case_of_node(module, found.part), case_of_node(module, found.again)],
            )
