"""A mean is summed over the processes, and nothing divides the sum: the result grows with their number.

## What it does
Traces the argument of `dist.all_reduce` and accelerate's `reduce`. It fires if that is a mean (a sum that was divided,
`x.mean()`, the loss of a model), `op` is not set or `ReduceOp.SUM`, and neither the value before nor the sum after is
divided by the number of processes. It does not report counts and sums that are divided by each other after the
reduction, a sum that was divided by a count over all processes, and a sum that is only compared with 0.

## Why it is bad
On eight GPUs (eight processes) the validation loss is eight times too large, and an accuracy of 0.4 becomes 3.2, or is
clipped to 1. Early stopping and the choice of the best checkpoint compare numbers that depend on the number of GPUs.

## Example
```python
import torch.distributed as dist

def validate(model, loader):
    total = 0.0
    for batch in loader:
        total += model(**batch).loss
    loss = total / len(loader)
    dist.all_reduce(loss)
    return loss.item()
```

## Use instead
```python
import torch.distributed as dist

def validate(model, loader):
    total = 0.0
    for batch in loader:
        total += model(**batch).loss
    loss = total / len(loader)
    dist.all_reduce(loss, op=dist.ReduceOp.AVG)
    return loss.item()
```

## Fix safety
There is no automatic fix: only NCCL supports `ReduceOp.AVG`; with gloo, divide by `dist.get_world_size()`. The logged
values become smaller, so don't compare them with those of earlier runs.

## References
- cybertronai/transformer-xl#14
- facebookresearch/fairchem#75
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.training_protocol.find_acted_objects import (
    ACCELERATORS,
    is_made_by,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, StoreEvent, Trace
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Library,
    Operation,
    Result,
    Sequence,
    Value,
    value_and_its_parts,
)

REDUCTIONS = ("torch.distributed.all_reduce", "torch.distributed.reduce")
CASTS = frozenset(("detach", "clone", "to", "cuda", "float", "double", "item", "mean", "div"))
COLLECTORS = frozenset(("gather", "gather_for_metrics", "reduce", "all_gather"))
"""Methods of accelerate and Lightning whose result is of all processes"""
COMPARISONS = frozenset(("==", "!=", ">", ">=", "<", "<="))
MAX_STEPS = 8
"""Casts between a mean and its reduction"""
MAX_VALUES = 200
"""Values behind a mean; some fifty"""
DIVISIONS = ("div_", "div", "mul_", "mul", "true_divide", "__call__")
SAME_VALUE = ("item", "clone", "detach", "cpu", "float")
"""Methods whose result may be divided instead of the tensor"""


def _reductions(module: Module) -> Iterator[ast.AST]:
    """The calls of a file that reduce a value over the processes."""
    yield from (call.node for call in module.calls(*REDUCTIONS))
    yield from (call.node for call in module.methods("reduce") if call.args)


class SumOverProcessesNotDivided(SourceRule):
    code = "SRC531"
    fault = Fault.VALUES_NOT_AVERAGED_OVER_PROCESSES
    symptoms = ("odd-metrics",)
    severity = "warning"
    looks_at = CodePlaces("reductions over processes", _reductions)

    def findings(self) -> Iterator[Finding]:
        """Findings on means that are summed over the processes."""
        module = self.subject
        if next(_reductions(module), None) is None:
            return
        for node in _undivided_sums(module):
            yield self.finding(
                "a mean is summed over the processes, and nothing divides the sum: on N processes the value is N times"
                " too large",
                "set op=dist.ReduceOp.AVG; without NCCL divide the sum by dist.get_world_size()",
                cases=[case_of_node(module, node)],
            )


def _undivided_sums(module: Module) -> Iterator[ast.AST]:
    """The reductions of a file that sum a mean, each place once."""
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for call in (*trace.calls(*REDUCTIONS), *trace.methods("reduce")):
            if call.node in seen or call.home is not module or not call.args:
                continue
            value = call.args[0]
            if not _is_sum_reduction(call) or not _is_mean(value, MAX_STEPS):
                continue
            # torch sums in place, accelerate gives the sum back.
            total = value if call.method is None else call.result
            if _is_made_with_process_count(value) or _includes_value_from_all_processes(
                trace, value, call.number
            ):
                continue
            if not _is_divided_later(trace, total, call.number):
                seen.add(call.node)
                yield call.node


def _is_sum_reduction(call: CallEvent) -> bool:
    """Does a reduction take the sum? That is what accelerate does where no `reduction` is given."""
    if call.method == "reduce":
        argument = call.argument(1, "reduction")
        is_default = argument is None and not call.is_open
        return is_made_by(call.receiver, ACCELERATORS) and (
            is_default or constant_of(argument) == "sum"
        )
    argument = call.argument(2 if call.named("*.reduce") else 1, "op")
    if argument is None:
        return not call.is_open
    name = argument.name if isinstance(argument, Library | Attribute) else ""
    return name.endswith("SUM")


def _is_mean(value: Value, steps: int) -> bool:
    """Is a value a mean: a quotient, `x.mean()`, the loss of a model?"""
    if isinstance(value, Operation):
        return value.operator == "/"
    if isinstance(value, Attribute):
        return value.name == "loss"
    if not isinstance(value, Result):
        return False
    call = value.call
    if call.method == "mean" or call.named("torch.mean", "torch.nn.functional.cross_entropy"):
        return True
    inner = _value_that_call_copies_or_converts(call)
    return inner is not None and steps > 0 and _is_mean(inner, steps - 1)


def _value_that_call_copies_or_converts(call: CallEvent) -> Value | None:
    """What a call copies, moves or makes a tensor of; None where it does something else, or joins several values."""
    if call.method in CASTS:
        return call.receiver
    if not call.named("torch.tensor", "torch.as_tensor") or not call.args:
        return None
    given = call.args[0]
    if not isinstance(given, Sequence):
        return given
    return given.items[0] if len(given.items) == 1 else None


def _is_made_with_process_count(value: Value) -> bool:
    """Is the number of processes a part of a value?"""
    return any(map(_is_process_count, value_and_its_parts(value, MAX_VALUES)))


def _includes_value_from_all_processes(trace: Trace, value: Value, before: int) -> bool:
    """Is something that came from all processes a part of a value, such as the number of tokens of all of them?"""
    summed = {
        id(call.args[0]) for call in trace.calls(*REDUCTIONS) if call.args and call.number < before
    }
    return any(
        id(part) in summed or (isinstance(part, Result) and part.call.method in COLLECTORS)
        for part in value_and_its_parts(value, MAX_VALUES)
    )


def _is_process_count(value: Value) -> bool:
    """Is a value the number of processes?"""
    if isinstance(value, Result):
        return value.call.named("*get_world_size") or value.call.method == "get_world_size"
    name = getattr(value, "name", "")
    return isinstance(name, str) and ("world_size" in name.lower() or "num_processes" in name)


def _is_comparison_with_zero(use: Operation) -> bool:
    """Is a value compared with 0? A sum is 0 where the mean is."""
    return use.operator in COMPARISONS and any(constant_of(one) == 0 for one in use.operands)


def _divides_or_asks_for_zero(operation: Operation) -> bool:
    """Does an operation divide or multiply, or ask whether the sum is zero, for which no mean is needed?"""
    return operation.operator in ("/", "*", "//") or _is_comparison_with_zero(operation)


def _is_divided_later(trace: Trace, value: Value, after: int) -> bool:
    """Is a tensor divided after its reduction, or kept where another function may divide it?"""
    for use in trace.uses(value):
        if isinstance(use, Operation) and _divides_or_asks_for_zero(use):
            return True
        if isinstance(use, StoreEvent) and use.number > after:
            return True
        if isinstance(use, CallEvent) and use.number > after:
            if use.method in DIVISIONS or use.named("torch.div", "torch.mul"):
                return True
            if use.method in SAME_VALUE and _is_divided_later(trace, use.result, after):
                return True
    return False
