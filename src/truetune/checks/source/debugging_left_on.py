"""A debugging switch is still on while a model is trained.

## What it does
Reads scripts that train (with a Trainer, Lightning, or a hand-written loop) for
`torch.autograd.set_detect_anomaly(True)`, `with torch.autograd.detect_anomaly():`, Lightning's `detect_anomaly=True`
and `profiler="pytorch"`, a `torch.profiler.profile` without a schedule around the training loop, and
`CUDA_LAUNCH_BLOCKING` set to 1 in `os.environ`. Not reported: a switch under a condition (also one around the call of
its function), one that is switched off again before the training or whose value is not known, tests, and runs of at
most a hundred steps.

## Why it is bad
Anomaly detection keeps a stack trace for each operation of the forward pass and checks for NaN after each operation of
the backward pass: a step takes about twice as long. With CUDA_LAUNCH_BLOCKING the CPU waits for each kernel before it
starts the next, so small kernels cost several times their own time. A profiler without a schedule records every step.

## Example
```python
import torch

torch.autograd.set_detect_anomaly(True)
for batch in loader:
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
```

## Use instead
```python
import torch

for batch in loader:
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
```

## Fix safety
Safe: results do not change. Keep the switch under an option (`if args.debug:`) for the next search.

## References
- pytorch.org, torch.autograd.set_detect_anomaly: "may slow down execution"; CUDA semantics, asynchronous execution
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.code_run_in_every_training_step import (
    innermost_loops_around_backward,
)
from truetune.checks.source.evidence.which_place_surely_runs_first import (
    runs_surely_before,
    runs_unconditionally,
    training_places,
    trains_anything,
)
from truetune.source.parsed_source_file import Module

SETS_ANOMALY = (
    "torch.autograd.set_detect_anomaly",
    "torch.autograd.anomaly_mode.set_detect_anomaly",
)
ENTERS_ANOMALY = ("torch.autograd.detect_anomaly", "torch.autograd.anomaly_mode.detect_anomaly")
LIGHTNING = ("lightning.*Trainer", "pytorch_lightning.*Trainer")
BLOCKING = "CUDA_LAUNCH_BLOCKING"
SHORT_RUN = 100
"""Steps of a run that may be the search itself. Chosen, not measured: a training has hundreds"""
OF_ANOMALY = "anomaly detection is on: it keeps a trace of each operation, and a step takes about twice as long"
PROFILERS = ("torch.profiler.profile", "torch.autograd.profiler.profile")
LIGHTNING_PROFILERS = ("advanced", "pytorch")
"""Those that trace each function or operation; `simple` takes the time of a few hooks"""
OF_PROFILER = (
    "a profiler without a schedule records each operation of the whole run: steps are several times slower, and the"
    " trace fills the memory"
)
OF_BLOCKING = f"{BLOCKING} is 1: the CPU waits for each kernel before it starts the next"


class _DebuggingSwitch(NamedTuple):
    """A switch of debugging that is on."""

    node: ast.AST
    why: str
    switched_off: tuple[ast.AST, ...] = ()
    """Places that switch the same off"""


class DebuggingLeftOn(SourceRule):
    code = "SRC270"
    fault = Fault.SWITCH_FOR_TESTING_LEFT_ON
    symptoms = ("slow-training",)
    severity = "warning"
    stability = "preview"
    looks_at = CodePlaces(
        "switches of debugging in scripts that train", lambda m: _debugging_switches(m)
    )

    def findings(self) -> Iterator[Finding]:
        """Findings on switches of debugging that are on while a model is trained."""
        module = self.subject
        for switch in _debugging_switches(module):
            if not runs_unconditionally(module, switch.node) or _is_in_pytest_function(
                module, switch.node
            ):
                continue
            if _is_off_in_training(module, switch):
                continue
            yield self.finding(
                f"debugging is left on in a training script: {switch.why}",
                f"remove {module.text_of(switch.node)[:80]}, or put it under an option (if args.debug:)",
                cases=[case_of_node(module, switch.node)],
            )


def _debugging_switches(module: Module) -> Iterator[_DebuggingSwitch]:
    """The switches of debugging that are on in a script that trains for more than a few steps."""
    trains = trains_anything(module) or any(module.methods("fit"))
    if not trains or _has_few_steps(module):
        return
    yield from _debugging_switches_from_places(
        module,
        [(call.node, call.argument(0, "mode")) for call in module.calls(*SETS_ANOMALY)],
        (True, False),
        OF_ANOMALY,
    )
    for call in module.calls(*ENTERS_ANOMALY):
        yield _DebuggingSwitch(call.node, OF_ANOMALY)
    for call in module.calls(*LIGHTNING):
        if module.flow.value(call.keywords.get("detect_anomaly")) is True:
            yield _DebuggingSwitch(call.keywords["detect_anomaly"], OF_ANOMALY)
        if module.flow.value(call.keywords.get("profiler")) in LIGHTNING_PROFILERS:
            yield _DebuggingSwitch(call.keywords["profiler"], OF_PROFILER)
    yield from _profilers_without_schedule(module)
    yield from _debugging_switches_from_places(
        module,
        [
            (node, node.value)
            for node in module.nodes(ast.Assign)
            if _sets_launch_blocking(node.targets[0])
        ],
        ("1", "0"),
        OF_BLOCKING,
    )


def _holds_loop_without_break(block: ast.With, loops: Collection[ast.AST]) -> bool:
    """Does a block hold one of these loops, and no `break`?"""
    nodes = list(ast.walk(block))
    is_left_early = any(isinstance(one, ast.Break) for one in nodes)
    return any(one in loops for one in nodes) and not is_left_early


def _profilers_without_schedule(module: Module) -> Iterator[_DebuggingSwitch]:
    """Profilers without a schedule around a loop of the training; a loop that is left early is the measurement."""
    loops = innermost_loops_around_backward(module) if any(module.calls(*PROFILERS)) else set()
    for block in module.nodes(ast.With):
        if not _holds_loop_without_break(block, loops):
            continue
        for item in block.items:
            node = item.context_expr
            call = module.flow.call(node) if isinstance(node, ast.Call) else None
            if call is None or call.open or "schedule" in call.keywords:
                continue
            if call.named(*PROFILERS):
                yield _DebuggingSwitch(call.node, OF_PROFILER)


def _debugging_switches_from_places(
    module: Module,
    places: Sequence[tuple[ast.AST, ast.expr | None]],
    on_and_off: tuple[object, object],
    why: str,
) -> Iterator[_DebuggingSwitch]:
    """The places that give a switch its value for on, each with those that give it the value for off."""
    on, off = on_and_off
    values = [(node, module.flow.value(given)) for node, given in places]
    switched_off = tuple(node for node, value in values if value == off)
    yield from (_DebuggingSwitch(node, why, switched_off) for node, value in values if value == on)


def _is_off_in_training(module: Module, switch: _DebuggingSwitch) -> bool:
    """Is a switch off again before each training of the file?"""
    trainings = list(training_places(module))
    return bool(trainings) and any(
        runs_surely_before(module, switch.node, off)
        and all(runs_surely_before(module, off, training) for training in trainings)
        for off in switch.switched_off
    )


def _is_in_pytest_function(module: Module, node: ast.AST) -> bool:
    """Does it stand in a function that pytest runs?"""
    return any(
        isinstance(one, ast.FunctionDef) and one.name.startswith("test_")
        for one in module.parents(node)
    )


def _sets_launch_blocking(target: ast.expr) -> bool:
    """Is the target `os.environ["CUDA_LAUNCH_BLOCKING"]`?"""
    return (
        isinstance(target, ast.Subscript)
        and isinstance(target.slice, ast.Constant)
        and target.slice.value == BLOCKING
    )


def _has_few_steps(module: Module) -> bool:
    """Is a run limited to few steps?"""
    for call in module.all_calls:
        steps = module.flow.value(call.keywords.get("max_steps"))
        if type(steps) is int and 0 < steps <= SHORT_RUN:
            return True
    return False
