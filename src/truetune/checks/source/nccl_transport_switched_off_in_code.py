"""A script switches off a fast NCCL transport.

## What it does
Looks for NCCL_IB_DISABLE, NCCL_NET, NCCL_P2P_DISABLE and NCCL_SHM_DISABLE that a script sets: in `os.environ`, in a
dictionary of variables, or in arguments of that name. It is a warning if the script asks for several nodes
(`num_nodes=2`), else info. It does not report values that leave the transport on, or settings under a condition, which
may be about the GPU.

## Why it is bad
These variables are set once, to find out why a run hangs, and are then forgotten. Without InfiniBand each step across
nodes waits for TCP, which takes ten to forty times as long. Without P2P or shared memory the GPUs of one node exchange
data through the CPU.

## Example
```python
import os

import torch

os.environ["NCCL_IB_DISABLE"] = "1"
torch.distributed.init_process_group("nccl")
```

## Use instead
```python
import torch

torch.distributed.init_process_group("nccl")
```

## Fix safety
Results stay the same. If the run hangs without the variable, start it with NCCL_DEBUG=INFO to see what fails.

## References
- docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html; huggingface/accelerate#1510
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.describe_cost_of_nccl_variables import (
    NCCL_VARIABLES,
    cost_of_switched_off_transport,
)
from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.parsed_source_file import Module

NODE_COUNTS = ("num_nodes", "nnodes", "num_machines")
"""Arguments of trainers and launchers that count nodes"""


SETTERS = ("setdefault", "putenv")
"""Functions that set a variable, by its name and its value"""


class VariableInCode(NamedTuple):
    """A variable that a script sets."""

    name: str
    value: str
    node: ast.AST


def _unconditional_nccl_settings(module: Module) -> Iterator[VariableInCode]:
    """The variables of NCCL that a script sets, under no condition: the name and its value stand side by side."""
    if not any(name in module.text for name in NCCL_VARIABLES):
        return
    for node, name_node, value_node in _environment_variable_settings(module):
        name = module.flow.value(name_node) if isinstance(name_node, ast.expr) else name_node
        value = module.flow.value(value_node)
        is_plain = isinstance(value, str | int) and isinstance(name, str)
        if is_plain and name in NCCL_VARIABLES and not _runs_conditionally(module, node):
            yield VariableInCode(str(name), str(value), node)


def _environment_variable_settings(
    module: Module,
) -> Iterator[tuple[ast.AST, ast.expr | str, ast.expr]]:
    """Places, names and values of settings in code: `environ[N] = v`, `{N: v}`, `setdefault(N, v)`,
    `dict(N=v)`.
    """
    yield from _settings_by_assignment(module)
    yield from _settings_by_dictionary(module)
    yield from _settings_by_call(module)


def _settings_by_assignment(module: Module) -> Iterator[tuple[ast.AST, ast.expr, ast.expr]]:
    """Places, names and values of `environ[N] = v`."""
    for assign in module.nodes(ast.Assign):
        for target in assign.targets:
            if isinstance(target, ast.Subscript):
                yield assign, target.slice, assign.value


def _settings_by_dictionary(module: Module) -> Iterator[tuple[ast.AST, ast.expr, ast.expr]]:
    """Places, names and values of `{N: v}`."""
    for table in module.nodes(ast.Dict):
        for key, value in zip(table.keys, table.values, strict=True):
            if key is not None:
                yield key, key, value


def _settings_by_call(module: Module) -> Iterator[tuple[ast.AST, ast.expr | str, ast.expr]]:
    """Places, names and values of `setdefault(N, v)` and `dict(N=v)`."""
    for call in module.all_calls:
        function = call.node.func
        # `os.environ.setdefault` is a name of the library to the flow of values, and no method.
        is_setter = isinstance(function, ast.Attribute) and function.attr in SETTERS
        if len(call.args) == 2 and is_setter:
            yield call.node, call.args[0], call.args[1]
        for name, value in call.keywords.items():
            if name in NCCL_VARIABLES:
                yield call.node, name, value


def _runs_conditionally(module: Module, node: ast.AST) -> bool:
    """Is it run under a condition other than `if __name__ == "__main__"`?"""
    return any(
        isinstance(around, ast.If) and "__name__" not in ast.unparse(around.test)
        for around in module.parents(node)
    )


def _number_of_nodes(module: Module) -> int | None:
    """The nodes that the script asks for; None where it does not say."""
    values = (
        module.flow.value(call.keywords[name])
        for call in module.all_calls
        for name in NODE_COUNTS
        if name in call.keywords
    )
    return max((value for value in values if type(value) is int), default=None)


class NcclTransportSwitchedOffInCode(SourceRule):
    code = "SRC161"
    fault = Fault.GPUS_COMMUNICATE_SLOWLY
    symptoms = ("several-gpus",)
    severity = "warning"
    looks_at = CodePlaces("variables of NCCL that code sets", _unconditional_nccl_settings)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for setting in _unconditional_nccl_settings(module):
            lost = cost_of_switched_off_transport(
                setting.name, setting.value, _number_of_nodes(module), None
            )
            if lost is not None:
                yield self.finding(
                    lost.why,
                    lost.instead,
                    severity=lost.severity,
                    cases=[case_of_node(module, setting.node)],
                )
