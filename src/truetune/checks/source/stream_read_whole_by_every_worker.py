"""Every worker of a DataLoader reads the whole stream.

## What it does
Looks for a `DataLoader` with several workers over an `IterableDataset` of your own whose code never checks which worker
it is. It does not fire if a `worker_init_fn` is passed, if the class, its bases or the functions that it calls mention
workers, if its rows come from a stream of datasets or WebDataset, which splits its files between the workers itself, or
if it loops over rows without end.

## Why it is bad
Each worker has a copy of the data set and reads it from the beginning: with 8 workers each row comes eight times in an
epoch, in neighbouring batches. An epoch takes eight times as long, the loss falls through repetition, and there is no
warning. A `Dataset` with a length is not affected: its sampler splits the rows.

## Example
```python
from torch.utils.data import DataLoader, IterableDataset


class Rows(IterableDataset):
    def __iter__(self):
        for line in open("rows.jsonl"):
            yield line


loader = DataLoader(Rows(), batch_size=4, num_workers=8)
```

## Use instead
```python
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Rows(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        for number, line in enumerate(open("rows.jsonl")):
            if worker is None or number % worker.num_workers == worker.id:
                yield line


loader = DataLoader(Rows(), batch_size=4, num_workers=8)
```

## Fix safety
Safe: each row then comes once per epoch. Splitting files between the workers (`files[worker.id::worker.num_workers]`)
is faster than splitting lines.

## References
- huggingface/datasets#3423
- https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.iterable_data_sets_of_own import (
    OwnStream,
    own_iterable_dataset_of_rows,
)
from truetune.checks.source.evidence.possible_values_of_expressions import possible_numbers
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

OF_A_WORKER = re.compile(r"worker", re.IGNORECASE)
"""What says that each worker has rows of its own"""
DRAWN_AT_RANDOM = re.compile(
    r"\b(?:randint|randrange|choices?|sample|multinomial|rand|cycle)\(|while (?:True|1)\b"
)
"""A stream without an end has no rows that come once: workers draw differently, for torch seeds each"""
DIVIDED_BY_LIBRARY = re.compile(r"streaming=True|to_iterable_dataset\(|\bwds\.|webdataset")
"""A stream that asks itself which worker reads it: of datasets, of WebDataset"""


def _multi_worker_loaders_without_init_fn(module: Module) -> Iterator[Call]:
    """The loaders that start several workers and tell them nothing."""
    for call in module.calls(
        "torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"
    ):
        if _number_of_workers(module, call) > 1 and "worker_init_fn" not in call.keywords:
            yield call


def _number_of_workers(module: Module, call: Call) -> int:
    """The workers of a loader, an option by its default; 0 where they are not known."""
    numbers = possible_numbers(module, call.keywords.get("num_workers"))
    return int(min(numbers)) if numbers else 0


def _divides_rows_among_workers(module: Module, stream: OwnStream) -> bool:
    """Do the workers get rows of their own from a stream, or is there no row that comes once?"""
    code = stream.text_of_code(module)
    if OF_A_WORKER.search(code) or DRAWN_AT_RANDOM.search(code):
        return True
    return any(map(DIVIDED_BY_LIBRARY.search, [code, *stream.texts_of_arguments(module)]))


class StreamReadWholeByEveryWorker(SourceRule):
    code = "SRC426"
    fault = Fault.ROWS_DIVIDED_WRONGLY_OVER_PROCESSES
    severity = "error"
    symptoms = ("nothing-is-learned", "slow-training")
    looks_at = CodePlaces("loaders with several workers", _multi_worker_loaders_without_init_fn)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call in _multi_worker_loaders_without_init_fn(module):
            rows = call.argument(0, "dataset")
            stream = None if rows is None else own_iterable_dataset_of_rows(module, rows)
            if stream is None or _divides_rows_among_workers(module, stream):
                continue
            workers = _number_of_workers(module, call)
            yield self.finding(
                f"each of the {workers} workers reads all rows of {stream.definition.name}: every row comes"
                f" {workers} times in an epoch",
                "in __iter__ call worker = torch.utils.data.get_worker_info(), and yield only rows with number %"
                " worker.num_workers == worker.id",
                cases=[case_of_node(module, call.node), case_of_node(module, stream.definition)],
            )
