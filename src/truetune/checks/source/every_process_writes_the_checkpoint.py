"""Every process writes the same checkpoint file at the same time.

## What it does
Looks for `torch.save` and `save_pretrained` in a script that starts `torch.distributed` itself (one process per GPU)
and wraps its model in DistributedDataParallel. It fires if there is no condition on the rank around the call or around
each call of its function, and the path does not contain the rank.

## Why it is bad
All processes write the same file at the same time. On a shared disk one overwrites part of another's file:
"PytorchStreamReader failed", a header that can't be read, or weights of two steps in one file.

## Example
```python
import torch
from torch.nn.parallel import DistributedDataParallel

torch.distributed.init_process_group("nccl")
model = DistributedDataParallel(net)
torch.save(model.module.state_dict(), "tuned.pt")
```

## Use instead
```python
import torch
from torch.nn.parallel import DistributedDataParallel

torch.distributed.init_process_group("nccl")
model = DistributedDataParallel(net)
if torch.distributed.get_rank() == 0:
    torch.save(model.module.state_dict(), "tuned.pt")
torch.distributed.barrier()
```

## Fix safety
Safe under DistributedDataParallel, where all processes have the same weights. The barrier keeps the others from reading
an incomplete file.

## References
- https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html (save and load checkpoints)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.multi_process_loops import (
    BY_RANK,
    models_wrapped_by_own_loops,
    runs_in_some_processes_only,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

SHARDING_SIGNS = ("FullyShardedDataParallel", "fully_shard", "dist_cp", "distributed.checkpoint")
"""Where each process writes a part of its own"""


def _weight_writes_by_several_processes(module: Module) -> Iterator[Call]:
    """Weights that a script of several processes writes."""
    if any(models_wrapped_by_own_loops(module)) and not module.mentions(*SHARDING_SIGNS):
        yield from module.calls("torch.save")
        yield from module.methods("save_pretrained")


class EveryProcessWritesTheCheckpoint(SourceRule):
    code = "SRC099"
    fault = Fault.PROCESSES_WRITE_SAME_FILES
    severity = "warning"
    looks_at = CodePlaces(
        "weights that scripts of several processes write", _weight_writes_by_several_processes
    )

    def findings(self) -> Iterator[Finding]:
        """Findings on checkpoints that every process writes under one name."""
        module = self.subject
        places = [
            call
            for call in _weight_writes_by_several_processes(module)
            if _does_every_process_write_same_name(module, call)
        ]
        if places:
            yield self.finding(
                "every process writes the same file at the same time: the file can end up broken",
                "write it only if torch.distributed.get_rank() == 0, and call torch.distributed.barrier() on all"
                " processes"
                " after that",
                cases=[case_of_node(module, call.node) for call in places],
            )


def _does_every_process_write_same_name(module: Module, call: Call) -> bool:
    """Is it done by every process, under one name?"""
    target = (
        call.argument(1, "f") if call.named("torch.save") else call.argument(0, "save_directory")
    )
    if target is None or call.open:
        return False
    spelled = [ast.unparse(target)]
    spelled += [
        ast.unparse(one.node)
        for one in module.flow.origins(target)
        if isinstance(one.node, ast.expr)
    ]
    if any(BY_RANK.search(text) for text in spelled):
        return False
    return not runs_in_some_processes_only(module, call.node)
