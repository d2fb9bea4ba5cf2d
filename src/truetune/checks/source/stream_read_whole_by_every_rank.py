"""Every process reads the whole stream.

## What it does
Looks for a `DataLoader` over a streaming data set, or over an `IterableDataset` of your own that never uses the rank.
The script must run as several processes (one per GPU): it starts `torch.distributed` itself, or lets Lightning start
processes (`devices=4`, or a strategy for several), in this file or one that runs with it. It does not fire if the
stream is split (`split_dataset_by_node`, `shard`) or the loader is prepared with accelerate. Rows that are only split
between the loader's workers are not split between processes, and Lightning adds no sampler to a stream.

## Why it is bad
A stream has no sampler: all processes train on the same rows, so several GPUs make no more progress than one.

## Example
```python
import torch
from datasets import load_dataset
from torch.utils.data import DataLoader

torch.distributed.init_process_group("nccl")
rows = load_dataset("parquet", data_files="*.parquet", split="train", streaming=True)
loader = DataLoader(rows, batch_size=4)
```

## Use instead
```python
import torch
from datasets import load_dataset
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader

torch.distributed.init_process_group("nccl")
rows = load_dataset("parquet", data_files="*.parquet", split="train", streaming=True)
rows = split_dataset_by_node(rows, torch.distributed.get_rank(), torch.distributed.get_world_size())
loader = DataLoader(rows, batch_size=4)
```

## Fix safety
Safe: the rows of an epoch are then shared between the processes. The number of files should be a multiple of the number
of processes; otherwise every process reads all files and skips the rows of the others.

## References
- huggingface/datasets#5360, huggingface/datasets#5961, huggingface/datasets#7854
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.does_lightning_start_several_processes import (
    lightning_trainer_or_fabric_calls,
    starts_lightning_processes,
)
from truetune.checks.source.evidence.iterable_data_sets_of_own import own_iterable_dataset_of_rows
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

SPLITS = re.compile(
    r"split_dataset_by_node|\.shard\(|\.prepare\(|IterableDatasetShard|rank\s*::|islice\("
)
TRAINER = re.compile(r"Trainer\(")
"""A Trainer of transformers or TRL, which divides streams itself; Lightning's does not"""

OF_A_RANK = re.compile(
    r"rank|world|replica|node|num_processes|process_(?:index|id)|islice|num_shards|shard_(?:id|idx|index|count)"
    r"|\bshard\b",
    re.I,
)
"""What in a data set of one's own says that each process has rows of its own"""
SHARD_IN_LOOP = "for shard in "
"""Files that are called shards say nothing of processes"""
STARTS = ("*.init_process_group", "deepspeed.init_distributed")


def _starts_processes(module: Module) -> bool:
    """Does a script start processes, or Lightning for it, in this file or another?"""
    parts = module.self_and_files_run_together
    return any(
        any(True for _ in part.calls(*STARTS)) or starts_lightning_processes(part) for part in parts
    )


def _divides_rows_or_uses_trainer(module: Module) -> bool:
    """Does any of the files divide rows, or give them to a Trainer that does?"""
    for part in module.self_and_files_run_together:
        # Any sign in any of the files: the split may stand in another one than the loader.
        if SPLITS.search(part.text):
            return True
        if TRAINER.search(part.text) and not any(
            True for _ in lightning_trainer_or_fabric_calls(part)
        ):
            return True
    return False


def _loaders_of_multi_process_script(module: Module) -> Iterator[Call]:
    """The loaders of a script that starts processes, in this file or another."""
    if _starts_processes(module):
        yield from module.calls(
            "torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"
        )


def _is_iterable_data_set_without_rank(module: Module, rows: ast.expr) -> bool:
    """Is it an IterableDataset of the file whose code speaks of no rank?"""
    stream = own_iterable_dataset_of_rows(module, rows)
    if stream is None:
        return False
    body = stream.text_of_code(module)
    if SHARD_IN_LOOP in body:
        body = re.sub(r"\bshard\b", "", body)
    # The arguments too: a data set may be given its rank where it is made.
    arguments = [*stream.made.args, *(word.value for word in stream.made.keywords)]
    code = " ".join([body, *map(ast.unparse, arguments)])
    return not OF_A_RANK.search(code)


class StreamReadWholeByEveryRank(SourceRule):
    code = "SRC063"
    fault = Fault.ROWS_DIVIDED_WRONGLY_OVER_PROCESSES
    severity = "error"
    since = "0.1.0"
    looks_at = CodePlaces(
        "loaders in scripts of several processes", _loaders_of_multi_process_script
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if _divides_rows_or_uses_trainer(module):
            return
        streams = any(
            module.flow.value(call.keywords.get("streaming")) is True for call in module.all_calls
        )
        for call in _loaders_of_multi_process_script(module):
            rows = call.argument(0, "dataset")
            if (
                rows is not None
                and call.lacks("sampler")
                and _is_iterable_data_set_without_rank(module, rows)
            ):
                yield self.finding(
                    "every process reads the whole stream: the IterableDataset gives all rows to each",
                    "in its __iter__ yield only the rows of this process: if number % world_size == rank, and with"
                    " loader workers also of this worker (torch.utils.data.get_worker_info)",
                    cases=[case_of_node(module, call.node)],
                )
                continue
            if (
                streams
                and rows is not None
                and "dataset" in module.flow.types(rows)
                and call.lacks("sampler")
            ):
                yield self.finding(
                    "every process reads the whole stream: all train on the same rows",
                    "split it: rows = split_dataset_by_node(rows, torch.distributed.get_rank(),"
                    " torch.distributed.get_world_size()), from datasets.distributed",
                    cases=[case_of_node(module, call.node)],
                )
