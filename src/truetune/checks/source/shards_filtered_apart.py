"""Each process takes its part of the rows and then drops some, so the numbers of batches differ.

## What it does
Looks, in a hand-written training loop around DDP or FSDP, for rows that are selected by the process's rank
(`rows[rank::world]`, `i % world == rank`, `shard`, `islice`, a file per rank) and of which a condition then drops some:
`continue` for rows that are too long, a comprehension with `if`, `filter`. It does not fire if a `DistributedSampler`,
`Join`, an agreement between the processes or a fixed number of steps makes the numbers equal.

## Why it is bad
All processes (one per GPU) must take part in every step. The parts lose different numbers of rows, so one process has
fewer batches and leaves the loop first. The others wait for it at the end of the first epoch until NCCL times out. On
one GPU the script finishes.

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
There is no automatic fix. With a sampler each process reads all rows and trains on its part; call its `set_epoch` at
the start of each epoch.

## References
- docs.pytorch.org/docs/stable/distributed.algorithms.join.html: "Join Context Manager", uneven inputs
- docs.pytorch.org/docs/stable/notes/ddp.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
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
    yield from (filtered_shard.part for filtered_shard in filtered_shards(module))


class ShardsFilteredApart(SourceRule):
    code = "SRC314"
    fault = Fault.PROCESSES_WAIT_FOR_EACH_OTHER
    symptoms = ("several-gpus",)
    severity = "warning"
    looks_at = CodePlaces("loops over rows in scripts of several processes", _loops_and_row_shares)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for filtered_shard in filtered_shards(module):
            yield self.finding(
                "each process takes its part of the rows and then drops some: the ranks have different numbers of"
                " batches, and at the end of an epoch those with more wait until NCCL times out",
                "filter all rows first, then split them with DistributedSampler(rows, drop_last=True); or stop all"
                " ranks at the smallest number of batches (all_reduce of len(loader) with ReduceOp.MIN)",
                cases=[
                    case_of_node(module, filtered_shard.part),
                    case_of_node(module, filtered_shard.condition),
                ],
            )
