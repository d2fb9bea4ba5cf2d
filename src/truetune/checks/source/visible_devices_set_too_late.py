"""CUDA_VISIBLE_DEVICES is set after CUDA was started, and has no effect.

## What it does
Looks for code at the top level of a script or notebook that sets `os.environ["CUDA_VISIBLE_DEVICES"]` below a line that
initialises CUDA: `torch.cuda.is_available()`, `get_device_name`, a tensor or model that is moved to "cuda", an import
of Unsloth. `import torch` by itself does not initialise it.

## Why it is bad
CUDA reads the variable once, when it starts. The run then sees all GPUs: it uses the first one, which another run may
have filled ("CUDA out of memory" with other processes on the GPU), or several instead of one.

## Example
```python
import os

import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
os.environ["CUDA_VISIBLE_DEVICES"] = "1"
```

## Use instead
```python
import os

os.environ["CUDA_VISIBLE_DEVICES"] = "1"

import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
```

## Fix safety
Safe if you set it above all other imports; safer still in the command: `CUDA_VISIBLE_DEVICES=1 python train.py`. The
chosen GPU is then called cuda:0.

## References
- CUDA programming guide, "CUDA environment variables"; pytorch/pytorch#23544, pytorch/pytorch#9158
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.parsed_source_file import Module

VARIABLE = "CUDA_VISIBLE_DEVICES"
STARTS_CUDA = (
    "torch.cuda.is_available", "torch.cuda.get_device_name", "torch.cuda.get_device_properties",
    "torch.cuda.get_device_capability", "torch.cuda.current_device", "torch.cuda.set_device", "torch.cuda.mem_get_info",
    "torch.cuda.init", "torch.cuda.synchronize", "torch.cuda.is_bf16_supported",
)  # fmt: skip
"""Calls that ask the driver for its GPUs; `device_count` asks another library, which starts nothing"""
FIRST_NAMES = ("cuda", "cuda:0")


def _visible_device_settings(module: Module) -> Iterator[ast.stmt]:
    """The assignments `os.environ["CUDA_VISIBLE_DEVICES"] = ...` at the top of the module."""
    for node in module.nodes(ast.Assign):
        target = node.targets[0]
        is_variable = isinstance(target, ast.Subscript) and VARIABLE in ast.unparse(target.slice)
        if is_variable and node in module.tree.body:
            yield node


class VisibleDevicesSetTooLate(SourceRule):
    code = "SRC111"
    fault = Fault.PROCESSES_USE_WRONG_GPUS
    severity = "warning"
    looks_at = CodePlaces(f"settings of {VARIABLE} in code", _visible_device_settings)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for setting in _visible_device_settings(module):
            start = next(_cuda_starts_before(module, setting), None)
            if start is not None:
                yield self.finding(
                    f"{VARIABLE} is set after CUDA was started, which reads it only once: all GPUs stay visible",
                    f"set it above the other imports, or in the command: {VARIABLE}=1 python SCRIPT",
                    cases=[case_of_node(module, setting), case_of_node(module, start)],
                )
                return


def _cuda_starts_before(module: Module, setting: ast.stmt) -> Iterator[ast.AST]:
    """Statements above the setting, run under no condition, that ask CUDA for its GPUs."""
    body = module.tree.body
    # Statements of the module run in order; a function runs when it is called, which may be later.
    for statement in body[: body.index(setting)]:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            names = [statement.module or ""] if isinstance(statement, ast.ImportFrom) else []
            names += [alias.name for alias in statement.names]
            # unsloth asks for the GPUs when it is imported.
            if "unsloth" in names:
                yield statement
        elif not isinstance(
            statement, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef | ast.If
        ):
            yield from (node for node in ast.walk(statement) if _call_starts_cuda(module, node))


def _call_starts_cuda(module: Module, node: ast.AST) -> bool:
    """Does a call ask the driver for its GPUs, or put something on one?"""
    if not isinstance(node, ast.Call):
        return False
    name = module.flow.name(node.func) or ""
    if name in STARTS_CUDA:
        return True
    method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    arguments = [module.flow.value(argument) for argument in node.args[:1]]
    return (method == "cuda" and not name.startswith("torch.cuda")) or (
        method == "to"
        and any(value in FIRST_NAMES for value in arguments if isinstance(value, str))
    )
