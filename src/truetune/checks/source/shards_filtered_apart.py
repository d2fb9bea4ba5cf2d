"""Each process takes its part of the rows and then drops some of them, so that ranks have other numbers of batches.

## What it does
Looks, in a training loop of one's own around DDP or FSDP, for rows that are chosen by the number of the process
(`rows[rank::world]`, `i % world == rank`, `shard`, `islice`, a file of each rank) and of which a condition then leaves
some out: `continue` for rows that are too long, a comprehension with `if`, `filter`. Silent where a
`DistributedSampler`, `Join`, an agreement among the processes or a fixed number of steps makes the numbers equal.

## Why it is bad
Every step is a meeting of all processes. The parts lose different numbers of rows, so that one rank has fewer batches
and leaves the loop first: the others wait for it at the end of the first epoch, until NCCL's time is over. On one GPU
the script runs through.

## Example
```python
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
model = DistributedDataParallel(net)
items = []
for row in rows[rank::world]:
    ids = tokenizer(row["text"])["input_ids"]
    if len(ids) > 1024:
        continue
    items.append(ids)
for batch in DataLoader(items, batch_size=8, collate_fn=collate):
    model(**batch).loss.backward()
```

## Use instead
```python
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("nccl")
model = DistributedDataParallel(net)
items = []
for row in rows:
    ids = tokenizer(row["text"])["input_ids"]
    if len(ids) > 1024:
        continue
    items.append(ids)
sampler = DistributedSampler(items, drop_last=True)
for batch in DataLoader(items, batch_size=8, collate_fn=collate, sampler=sampler):
    model(**batch).loss.backward()
```

## Fix safety
There is no automatic fix. With a sampler each process reads all rows and trains on its part; `set_epoch` belongs to it.

## References
- docs.pytorch.org/docs/stable/distributed.algorithms.join.html: "Join Context Manager", uneven inputs
- docs.pytorch.org/docs/stable/notes/ddp.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.shards_filtered_after_division import (
    WRAPS_MODEL,
    filtered_shards,
)
from truetune.source.parsed_source_file import Module


def _loops_and_row_shares(module: Module) -> Iterator[ast.AST]:
    """Loops of a script that wraps a model for several processes, and the parts of the rows that
    processes take.
    """
    if any(WRAPS_MODEL.search(part.text) for part in module.self_and_files_run_together):
        yield from module.nodes(ast.For)
    yield from (found.part for found in filtered_shards(module))


class ShardsFilteredApart(SourceRule):
    code = "SRC314"
    symptoms = ("several-gpus",)
    severity = "warning"
    looks_at = CodePlaces("loops over rows in scripts of several processes", _loops_and_row_shares)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for found in filtered_shards(module):
            yield self.finding(
                "each process takes its part of the rows and then leaves some out: the ranks have different numbers of"
                " batches, and at the end of an epoch those with more wait for the others until NCCL's time is over",
                "filter the rows before they are divided, and divide them by DistributedSampler(drop_last=True); or"
                " stop all ranks at the least number of batches (all_reduce of len(loader) with ReduceOp.MIN)",
                cases=[case_of_node(module, found.part), case_of_node(module, found.condition)],
            )
