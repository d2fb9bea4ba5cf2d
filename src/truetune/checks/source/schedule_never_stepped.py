"""A schedule with a warm-up is never stepped by a hand-written loop: the learning rate stays at its start.

## What it does
For files that call `backward()` themselves: looks at each schedule of transformers that has a warm-up, and at each
`OneCycleLR`. It fires if every `step()` in the files that run together belongs to an optimizer, a gradient scaler or a
profiler, and nothing else may step the schedule: no trainer, engine or Lightning module, and no code that sets `lr`.

## Why it is bad
When a schedule is created, it sets the learning rate of the first step. With a linear warm-up that is 0: every
optimizer step multiplies its update by 0. Gradients look healthy, but no weight ever changes. `OneCycleLR` stays at
1/25 of its peak.

## Example
```python
import torch
from transformers import AutoModelForCausalLM, get_linear_schedule_with_warmup

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
scheduler = get_linear_schedule_with_warmup(optimizer, 100, 1000)
for batch in batches:
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
```

## Use instead
```python
import torch
from transformers import AutoModelForCausalLM, get_linear_schedule_with_warmup

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
scheduler = get_linear_schedule_with_warmup(optimizer, 100, 1000)
for batch in batches:
    model(**batch).loss.backward()
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
```

## Fix safety
Safe if the schedule's length counts optimizer steps: it then steps once after each `optimizer.step()`. The run trains
for the first time at the intended learning rate.

## References
- https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.backward_and_optimizer_step_calls import backward_calls
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.learning_rate_schedules import BY_NAME, expressions_of_number
from truetune.checks.source.evidence.possible_values_of_expressions import possible_numbers
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

WARMED_UP = (
    "transformers.get_*_schedule_with_warmup",
    "transformers.get_cosine_with_*",
    BY_NAME,
)
ONE_CYCLE = ("torch.optim.lr_scheduler.OneCycleLR",)
NOT_OPTIMIZERS = re.compile(r"(?:^|\.)_?(?:\w*scaler|prof|profiler)$", re.I)
OPTIMIZER_NAME = re.compile(r"(?:^|\.)_?(?:opt|optim|optimi[sz]er|adamw?|sgd)(?:_\w+|\d)?$", re.I)
KEEPS_SCHEDULES = frozenset(("prepare", "register_for_checkpointing", "append", "print"))
"""Methods that take a schedule and do not step it"""
STEPS_ELSEWHERE = re.compile(
    r"Trainer\b|deepspeed|[Ll]ightning|configure_optimizers|\bignite\b|\bcomposer\b|lr_scheduler_step"
    r"|\[['\"]lr['\"]\]\s*[*+-]?=|\.step\b(?!\()|getattr\("
)
"""In files: what may step a schedule without its name, or sets the rate by itself"""


def _schedules_with_low_start(module: Module) -> Iterator[Call]:
    """Schedules whose first rate is far below their peak, or may be."""
    yield from module.calls(*WARMED_UP, *ONE_CYCLE)


class ScheduleNeverStepped(SourceRule):
    code = "SRC390"
    fault = Fault.WARMUP_WRONG
    symptoms = ("loss-does-not-fall",)
    severity = "error"
    looks_at = CodePlaces("learning rate schedules with a warm-up", _schedules_with_low_start)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        schedules = [
            call
            for call in _schedules_with_low_start(module)
            if _starts_far_below_peak(module, call)
        ]
        if not schedules or not _trains_in_plain_loop(module):
            return
        steps = _possible_optimizer_or_schedule_steps(module)
        if not steps or not all(_is_step_of_optimizer(part, call) for part, call in steps):
            return
        part, first = steps[0]
        for call in schedules:
            if _may_be_stepped_elsewhere(module, call):
                continue
            rest = "1/25 of its peak" if call.named(*ONE_CYCLE) else "0, where its warm-up starts"
            yield self.finding(
                f"the schedule is created but never stepped: the learning rate stays at {rest}",
                "call scheduler.step() after each optimizer.step()",
                cases=[case_of_node(module, call.node), case_of_node(part, first.node)],
            )


def _possible_optimizer_or_schedule_steps(module: Module) -> list[tuple[Module, Call]]:
    """The calls of `step` in the files that may be those of an optimizer or a schedule, each with its file."""
    return [
        (part, call)
        for part in module.self_and_files_run_together
        for call in part.methods("step")
        if not NOT_OPTIMIZERS.search(_receiver_text(call)) or call.args
    ]


def _starts_far_below_peak(module: Module, call: Call) -> bool:
    """Is the first rate of a schedule surely far below its peak: has it a warm-up of at least a step?"""
    if call.named(*ONE_CYCLE):
        return call.lacks("div_factor", 10)
    warmup = call.argument(1 + call.named(BY_NAME), "num_warmup_steps")
    if warmup is None:
        return False
    numbers = possible_numbers(module, warmup)
    if numbers:
        return all(number > 0 for number in numbers)
    # A share of the steps: `int(0.05 * total)`.
    parts = (getattr(node, "value", None) for node in expressions_of_number(module, warmup))
    return any(isinstance(value, float) and 0 < value < 1 for value in parts)


def _trains_in_plain_loop(module: Module) -> bool:
    """Do the files compute gradients in a loop of their own, with nothing beside it that may step a schedule?"""
    parts = module.self_and_files_run_together
    if any(STEPS_ELSEWHERE.search(part.text) for part in parts):
        return False
    return any(True for part in parts for _ in backward_calls(part))


def _may_be_stepped_elsewhere(module: Module, schedule: Call) -> bool:
    """Is a schedule given to a function that is not in these files, and may step it?"""
    for part in module.self_and_files_run_together:
        for call in part.all_calls:
            if (
                call.method in KEEPS_SCHEDULES
                or part.flow.function_that_expression_names(call.node.func) is not None
            ):
                continue
            for argument in (*call.args, *call.keywords.values()):
                is_named = isinstance(argument, ast.Name)
                origins = part.flow.origins(argument) if is_named else ()
                if any(origin.node is schedule.node for origin in origins):
                    return True
    return False


def _receiver_text(call: Call) -> str:
    """The receiver of a call as text: `self.scheduler` of `self.scheduler.step()`."""
    return ast.unparse(call.receiver) if call.receiver is not None else ""


def _is_step_of_optimizer(module: Module, call: Call) -> bool:
    """Is a step surely one of an optimizer: by what made it, or by its name and that of no schedule?"""
    if call.receiver is None or NOT_OPTIMIZERS.search(_receiver_text(call)):
        return call.receiver is not None
    if "optimizer" in module.flow.types(call.receiver):
        return True
    return OPTIMIZER_NAME.search(_receiver_text(call)) is not None
