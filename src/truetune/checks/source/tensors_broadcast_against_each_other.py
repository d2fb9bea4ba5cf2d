"""A loss or a difference gets tensors of mismatched shapes: each row is compared with the values of all rows.

## What it does
Tracks the axes of tensors through a script: rows, positions, and the axis of size one that a layer with one output
leaves. It fires if a loss of differences (`mse_loss`, `l1_loss`, ...) or a difference gets scores of `(rows, 1)` and
targets of `(rows,)`, and if a mean over an axis is subtracted without `keepdim=True`, so that it is aligned with
another axis. It does not report axes that a script adds itself to compare each with each.

## Why it is bad
PyTorch broadcasts both to `(rows, rows)`: each score is pulled towards the mean of all targets, and the model learns
one answer for all rows. A group mean aligned with the wrong axis gives each completion the baseline of another prompt.
Both run, at most with a warning about sizes.

## Example
```python
import torch
import torch.nn as nn
from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModel.from_pretrained("model")
head = nn.Linear(model.config.hidden_size, 1)
for rows in batches:
    inputs = tokenizer([row["text"] for row in rows], padding=True, return_tensors="pt")
    target = torch.tensor([float(row["score"]) for row in rows])
    scores = head(model(**inputs).last_hidden_state[:, 0])
    nn.functional.mse_loss(scores, target).backward()
```

## Use instead
```python
import torch
import torch.nn as nn
from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModel.from_pretrained("model")
head = nn.Linear(model.config.hidden_size, 1)
for rows in batches:
    inputs = tokenizer([row["text"] for row in rows], padding=True, return_tensors="pt")
    target = torch.tensor([float(row["score"]) for row in rows])
    scores = head(model(**inputs).last_hidden_state[:, 0]).squeeze(-1)
    nn.functional.mse_loss(scores, target).backward()
```

## Fix safety
There is no automatic fix: the rule can't know which of the two has the intended shape. The training must be repeated.

## References
- pytorch/pytorch#18349
- deepset-ai/FARM#229
- OpenRLHF/OpenRLHF#1250
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.tensor_axes import NEW, ONE, Axes, axes_of
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import Operation, Result, Value

LOSS_FUNCTIONS = (
    "torch.nn.functional.mse_loss",
    "torch.nn.functional.l1_loss",
    "torch.nn.functional.smooth_l1_loss",
    "torch.nn.functional.huber_loss",
)
LOSS_LAYERS = ("torch.nn.MSELoss", "torch.nn.L1Loss", "torch.nn.SmoothL1Loss", "torch.nn.HuberLoss")


class UnlikeAxes(NamedTuple):
    """Two tensors of unlike axes that meet."""

    node: ast.AST
    one: Axes
    other: Axes


def _losses_of_differences(module: Module) -> Iterator[ast.AST]:
    """Places that compare scores with targets by their difference, or take a mean along an axis."""
    yield from (call.node for call in module.calls(*LOSS_FUNCTIONS, *LOSS_LAYERS))
    for call in module.methods("mean"):
        if call.args or {"dim", "axis"} & set(call.keywords):
            yield call.node


class TensorsBroadcastAgainstEachOther(SourceRule):
    code = "SRC522"
    fault = Fault.LOSS_COMPUTED_FROM_WRONG_VALUES
    symptoms = ("nothing-is-learned",)
    severity = "error"
    looks_at = CodePlaces("losses of differences, and means along an axis", _losses_of_differences)

    def findings(self) -> Iterator[Finding]:
        """Findings on tensors of unlike axes that a loss or a difference takes."""
        module = self.subject
        if next(_losses_of_differences(module), None) is None:
            return
        seen: set[ast.AST] = set()
        for trace in traces_of_scripts_that_reach_file(module):
            for unlike_axes in _unlike_axes_of_run(trace):
                if unlike_axes.node in seen or module.home(unlike_axes.node) is not module:
                    continue
                if not module.holds(unlike_axes.node):
                    continue
                seen.add(unlike_axes.node)
                yield self.finding(
                    f"tensors of shape {_format_axes(unlike_axes.one)} and {_format_axes(unlike_axes.other)} are"
                    " broadcast against each other: each row is compared with the values of all rows",
                    "drop the axis of size one: scores.squeeze(-1); a mean that you subtract needs keepdim=True",
                    cases=[case_of_node(module, unlike_axes.node)],
                )


def _format_axes(axes: Axes) -> str:
    """Axes as a reader sees them."""
    names = [one if one != ONE else "1" for one in axes]
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"


def _unlike_axes_of_run(trace: Trace) -> Iterator[UnlikeAxes]:
    """The tensors of unlike axes that meet in a run."""
    for call in trace.all_calls:
        pair = _scores_and_targets_of_loss(call)
        if pair is not None:
            yield from _wrong_broadcast_of_two_tensors(call.node, *pair)
    for value in trace.values:
        if isinstance(value, Operation) and value.operator == "-" and len(value.operands) == 2:
            if value.node is not None:
                yield from _wrong_broadcast_of_two_tensors(value.node, *value.operands)


def _scores_and_targets_of_loss(call: CallEvent) -> tuple[Value, Value] | None:
    """The scores and targets of a loss of differences."""
    is_loss = call.named(*LOSS_FUNCTIONS)
    if call.method == "__call__" and isinstance(call.receiver, Result):
        is_loss = call.receiver.call.named(*LOSS_LAYERS)
    one, other = call.argument(0, "input"), call.argument(1, "target")
    return (one, other) if is_loss and one is not None and other is not None else None


def _wrong_broadcast_of_two_tensors(
    node: ast.AST, one: Value, other: Value
) -> Iterator[UnlikeAxes]:
    """Two tensors where they are broadcast against each other by mistake."""
    axes, other_axes = axes_of(one), axes_of(other)
    if axes is None or other_axes is None or NEW in (*axes, *other_axes):
        return
    if axes and other_axes and _do_axes_broadcast_wrongly(axes, other_axes):
        yield UnlikeAxes(node, axes, other_axes)


def _do_axes_broadcast_wrongly(axes: Axes, other: Axes) -> bool:
    """Do an axis of one and the axis of the rows meet, or two that mean different things?"""
    if len(axes) == len(other):
        return False
    short, long = sorted((axes, other), key=len)
    pairs = list(zip(reversed(short), reversed(long), strict=False))
    return any(one != two for one, two in pairs) and short[-1] in long
