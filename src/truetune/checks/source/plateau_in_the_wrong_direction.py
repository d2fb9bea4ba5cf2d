"""A schedule that waits for a plateau has the wrong mode: it lowers the learning rate while the metric improves.

## What it does
Looks at `ReduceLROnPlateau`, its `mode` (default: `min`) and the metric that its `step` gets. It fires if the metric's
name says the other direction: `mode="max"` with a loss, `mode="min"` with an accuracy.

## Why it is bad
Each evaluation that improves counts as one that does not. After `patience` evaluations the learning rate is divided,
again and again, while the model still learns; if the model gets worse, the learning rate stays.

## Example
```python
import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
for epoch in range(10):
    train(model, optimizer)
    accuracy = evaluate(model)
    scheduler.step(accuracy)
```

## Use instead
```python
import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", patience=1)
for epoch in range(10):
    train(model, optimizer)
    accuracy = evaluate(model)
    scheduler.step(accuracy)
```

## Fix safety
Safe, if the metric is what its name says. The learning rate then stays high for longer, so the run takes another
course.

## References
- https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.ReduceLROnPlateau.html (`mode`)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.metric_direction_words import LOWER_IS_BETTER, words_with_known_direction
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

PLATEAU = "torch.optim.lr_scheduler.ReduceLROnPlateau"


class PlateauStep(NamedTuple):
    """A step of such a schedule, with a metric whose direction its name says."""

    schedule: Call
    step: Call
    metric: str
    mode: str
    needed: str
    """The mode that the metric needs"""


def plateau_scheduler_steps(module: Module) -> Iterator[PlateauStep]:
    """The steps of schedules that wait for a plateau."""
    made = {call.node: call for call in module.calls(PLATEAU)}
    for step in module.methods("step") if made else ():
        schedule = _only_schedule_of_step(module, step, made)
        metric = _last_name(step.argument(0, "metrics"))
        mode = _mode_of(module, schedule) if schedule is not None else None
        words = words_with_known_direction(metric)
        if schedule is not None and mode is not None and words:
            needed = "min" if words[-1] in LOWER_IS_BETTER else "max"
            yield PlateauStep(schedule, step, metric, mode, needed)


def _only_schedule_of_step(
    module: Module, step: Call, made: Mapping[ast.Call, Call]
) -> Call | None:
    """The schedule that a step is of; None where it may be one of several, or none of these."""
    origins = module.flow.origins(step.receiver) if step.receiver is not None else ()
    nodes = [one.node for one in origins if isinstance(one.node, ast.Call)]
    schedules = [made[node] for node in nodes if node in made]
    return schedules[0] if len(schedules) == 1 else None


def _mode_of(module: Module, schedule: Call) -> str | None:
    """The mode of a schedule, `min` where none is given; None where it is not known."""
    if schedule.lacks("mode", 1):
        return "min"
    mode = module.flow.value(schedule.argument(1, "mode"))
    return mode if mode in ("min", "max") else None


def _last_name(metric: ast.expr | None) -> str:
    """The last name of a metric: of a name, an attribute, or a key; empty where it has none."""
    if isinstance(metric, ast.Subscript) and isinstance(metric.slice, ast.Constant):
        return str(metric.slice.value)
    if isinstance(metric, ast.Attribute):
        return metric.attr
    return metric.id if isinstance(metric, ast.Name) else ""


class PlateauInTheWrongDirection(SourceRule):
    code = "SRC479"
    fault = Fault.SCHEDULE_LENGTH_OR_DIRECTION_WRONG
    symptoms = ("loss-does-not-fall",)
    severity = "error"
    looks_at = CodePlaces("schedules that wait for a plateau", plateau_scheduler_steps)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for plateau_step in plateau_scheduler_steps(module):
            if plateau_step.mode != plateau_step.needed:
                yield self.finding(
                    f"ReduceLROnPlateau has mode={plateau_step.mode!r} but gets {plateau_step.metric}: it lowers the"
                    " learning rate while the metric improves",
                    f'set mode="{plateau_step.needed}" in ReduceLROnPlateau',
                    cases=[
                        case_of_node(module, plateau_step.schedule.node),
                        case_of_node(module, plateau_step.step.node),
                    ],
                )
