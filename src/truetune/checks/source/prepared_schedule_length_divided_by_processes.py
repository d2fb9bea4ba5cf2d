"""A prepared scheduler is as long as a prepared loader: on N processes it ends after 1/N of the run.

## What it does
It finds schedulers that are given to `accelerator.prepare` and whose length is that of a loader which was prepared
before, without `num_processes`; and those whose length is a number of rows divided by the number of processes.

## Why it is bad
A prepared scheduler steps N times at each step (once for each process), and a prepared loader is N times shorter. On
several GPUs the learning rate is zero for most of the run; on one GPU nothing is wrong.

## Example
```python
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import get_scheduler

accelerator = Accelerator()
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(rows, batch_size=8))
scheduler = get_scheduler("linear", optimizer, 0, num_training_steps=len(loader) * 3)
scheduler = accelerator.prepare(scheduler)
```

## Use instead
```python
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import get_scheduler

accelerator = Accelerator()
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(rows, batch_size=8))
scheduler = get_scheduler("linear", optimizer, 0, num_training_steps=len(loader) * 3 * accelerator.num_processes)
scheduler = accelerator.prepare(scheduler)
```

## Fix safety
Safe: with one process nothing changes.

## References
- huggingface/accelerate#2926, huggingface/accelerate#1382, huggingface/transformers#24088
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node, fix_of_changes
from truetune.checks.source.evidence.learning_rate_schedules import (
    SCHEDULES,
    expressions_of_number,
    len_calls_in_expression,
    schedules_with_length,
)
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.make_source_edits import replace_expression
from truetune.source.parsed_source_file import Module


class PreparedScheduleLengthDividedByProcesses(SourceRule):
    code = "SRC014"
    fault = Fault.SCHEDULE_LENGTH_OR_DIRECTION_WRONG
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    looks_at = SCHEDULES

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call, total in schedules_with_length(module):
            accelerator = _accelerator_stepping_per_process(module, call)
            if accelerator is None:
                continue
            if _is_only_divided_by_processes(module, total):
                yield self.finding(
                    "the schedule's length is divided by the number of processes, but a prepared scheduler steps"
                    " once for each process: on N GPUs it ends after 1/N of the run",
                    "do not divide the length by the number of processes, or do not prepare the scheduler",
                    cases=[case_of_node(module, total), case_of_node(module, accelerator)],
                )
            elif not _does_length_depend_on_process_count(module, total):
                yield from self._findings_on_prepared_length(total, accelerator)

    def _findings_on_prepared_length(
        self, total: ast.expr, accelerator: ast.expr
    ) -> Iterator[Finding]:
        """Findings on a schedule that is as long as a loader which was prepared before."""
        module = self.subject
        prepared = [
            node
            for node in len_calls_in_expression(module, total)
            if _is_returned_by_prepare(module, node.args[0])
        ]
        if not prepared:
            return
        text = f"{module.text_of(accelerator)}.num_processes"
        whole = module.text_of(total)
        binds = isinstance(total, (ast.Name, ast.Attribute, ast.Call, ast.Constant)) or (
            isinstance(total, ast.BinOp) and isinstance(total.op, ast.Mult)
        )
        longer = f"{whole if binds else f'({whole})'} * {text}"
        yield self.finding(
            "the schedule is as long as the prepared loader, but a prepared scheduler steps"
            " once for each process: on N GPUs it ends after 1/N of the run",
            f"multiply the schedule's length by {text}, or do not prepare the scheduler",
            cases=[case_of_node(module, total), case_of_node(module, prepared[0])],
            fix=fix_of_changes(module, replace_expression(module, total, longer)),
        )


def _accelerator_stepping_per_process(module: Module, schedule: Call) -> ast.expr | None:
    """The accelerator that a schedule is given to, where it steps the schedule for each process."""
    for call in module.methods("prepare", "prepare_scheduler"):
        if call.receiver is None or "accelerator" not in module.flow.types(call.receiver):
            continue
        if not any(
            o.node is schedule.node for argument in call.args for o in module.flow.origins(argument)
        ):
            continue
        made = module.flow.producing_call(call.receiver)
        if (
            made is not None
            and not made.open
            and not {"split_batches", "step_scheduler_with_optimizer"} & {*made.keywords}
        ):
            return None if "dataloader_config" in made.keywords else call.receiver
    return None


def _is_only_divided_by_processes(module: Module, total: ast.expr) -> bool:
    """Is a number of rows divided by a product with the number of processes, and never multiplied by it again?"""
    with_processes = [
        part
        for part in backward_slice(module, total)
        if isinstance(part, ast.BinOp) and _depends_on_processes(module, part.right)
    ]
    divisions = [one for one in with_processes if isinstance(one.op, ast.FloorDiv | ast.Div)]
    # The product that is divided by names the processes too.
    divisors = {
        one
        for division in divisions
        for one in (*ast.walk(division.right), *backward_slice(module, division.right))
    }
    others = [one for one in with_processes if one not in divisions and one not in divisors]
    return len(divisions) == 1 and not others


def _depends_on_processes(module: Module, expression: ast.expr) -> bool:
    """Is an expression, by itself or by what its names were set to, made with the number of processes?"""
    return any(map(_names_number_of_processes, backward_slice(module, expression)))


def _does_length_depend_on_process_count(module: Module, total: ast.expr) -> bool:
    """Does a number of steps depend on the number of processes?"""
    return any(
        _names_number_of_processes(part)
        for node in expressions_of_number(module, total)
        for part in ast.walk(node)
    )


def _names_number_of_processes(node: ast.AST) -> bool:
    """Is the node a name or an attribute that says the number of processes?"""
    name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
    return name in ("num_processes", "world_size", "get_world_size")


def _is_returned_by_prepare(module: Module, node: ast.expr) -> bool:
    """Is it, here, what `prepare` returned?"""
    origins = module.flow.origins(node)
    return bool(origins) and all(
        isinstance(o.node, ast.Call)
        and isinstance(o.node.func, ast.Attribute)
        and o.node.func.attr in ("prepare", "prepare_data_loader")
        and "accelerator" in module.flow.types(o.node.func.value)
        for o in origins
    )
