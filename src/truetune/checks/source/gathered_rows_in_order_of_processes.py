"""Answers are gathered process by process, but compared with rows in the order of the file.

## What it does
Looks for `all_gather_object`, `gather_object` and the like with answers to `rows[rank::world]` (a round-robin split of
the file), in a script that then puts the joined answers next to columns or lists of the file (a column of the frame,
`zip`, `references=`). Not reported if anything restores the order: a sort, an id or index that each answer carries, or
a slice that puts them back.

## Why it is bad
The joined list contains rows 0, 4, 8, ... and then 1, 5, 9, ...: each answer is compared with another row's reference.
On one GPU the order is that of the file, so the score drops when GPUs are added.

## Example
```python
import torch.distributed as dist

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
answers = [answer(question) for question in table.iloc[rank::world]["question"]]
parts = [None] * world
dist.all_gather_object(parts, answers)
table["prediction"] = [one for part in parts for one in part]
```

## Use instead
```python
import torch.distributed as dist

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
answers = [answer(question) for question in table.iloc[rank::world]["question"]]
parts = [None] * world
dist.all_gather_object(parts, answers)
joined = [None] * len(table)
for number, part in enumerate(parts):
    joined[number::world] = part
table["prediction"] = joined
```

## Fix safety
Safe: the answers are the same, and each is next to its own row.

## References
- docs.pytorch.org/docs/stable/distributed.html: `all_gather_object`
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
from truetune.checks.source.evidence.joins_after_only_one_side_changed import wrong_joins
from truetune.checks.source.evidence.rows_divided_by_process import (
    backward_slice_through_loops,
    depends_on_process_number_or_count,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

GATHERS = (
    "torch.distributed.all_gather_object",
    "torch.distributed.gather_object",
    "accelerate.utils.gather_object",
)
PUTS_BACK = re.compile(
    r"\bsort|sorted|argsort|::\s*\w+\]\s*=|zip\(\*|zip_longest|\bindex\b(?!\s*=\s*False)|enumerate|idx|['\"]id['\"]"
    r"|_ids?\b|reindex|merge|interleave|% ?world|\border",
    re.I,
)
"""Signs that each answer carries its place, or is dealt out again"""
SETS_BESIDE = re.compile(r"\bzip\(|references\s*=")
"""What compares lists by position"""


def _object_gathers(module: Module) -> Iterator[tuple[Call, ast.expr]]:
    """Calls that gather objects of the processes, with what each of them gives."""
    for call in module.calls(*GATHERS):
        is_filled = call.named("*.all_gather_object")
        obj_argument = call.argument(1 if is_filled else 0, "obj")
        if obj_argument is not None:
            yield call, obj_argument


class GatheredRowsInOrderOfProcesses(SourceRule):
    code = "SRC381"
    fault = Fault.ANSWERS_COMPARED_WITH_OTHER_REFERENCES
    symptoms = ("several-gpus", "odd-metrics")
    severity = "error"
    looks_at = CodePlaces("objects that are gathered from all processes", _object_gathers)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if any(PUTS_BACK.search(part.text) for part in module.self_and_files_run_together):
            return
        if not SETS_BESIDE.search(module.text) and not _flattens_into_column(module):
            return
        # rows-joined-after-one-side-changed names joins of which it can follow both sides.
        if any(join.change.kind == "parts" for join in wrong_joins(module)):
            return
        for call, given in _object_gathers(module):
            dealt = _strided_slice_of_rows(module, given)
            if dealt is not None:
                yield self.finding(
                    f"the rows were split round-robin ({module.text_of(dealt)[:60]}), but the answers are joined"
                    " process by"
                    " process: they end up next to the wrong rows",
                    "put each process's answers back: joined = [None] * number_of_rows; for r, part in"
                    " enumerate(parts):"
                    " joined[r::world] = part; or gather each answer with its row number and sort by it",
                    cases=[case_of_node(module, call.node), case_of_node(module, dealt)],
                )


def _strided_slice_of_rows(module: Module, expression: ast.expr) -> ast.Subscript | None:
    """Where every so many rows are taken, of which an expression is made: `rows[rank::world]`."""
    for part in backward_slice_through_loops(module, expression):
        if isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Slice):
            steps = part.slice.step
            if steps is not None and depends_on_process_number_or_count(module, part.slice):
                return part
    return None


def _flattens_into_column(module: Module) -> bool:
    """Does a list of lists, taken apart, become a column: `table["a"] = [one for part in parts for one in part]`?"""
    for node in module.nodes(ast.Assign):
        target = node.targets[0]
        value = node.value
        is_column = isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant)
        is_joined = isinstance(value, ast.ListComp) and len(value.generators) == 2
        if is_column and (is_joined or "chain" in ast.unparse(value)):
            return True
    return False
