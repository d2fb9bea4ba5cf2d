"""Does Lightning start several processes for a script: by its devices, or by a strategy that is named for several.

A number of devices that comes from the command line says nothing by itself. A strategy of several processes that stands
in the code beside it does: whoever writes `"ddp" if devices > 1 else "auto"` runs both.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.source.module import Module
from truetune.source.resolved_calls import Call

LIGHTNING = tuple(
    f"{package}.{name}"
    for package in (
        "lightning",
        "lightning.pytorch",
        "lightning.fabric",
        "pytorch_lightning",
        "lightning_fabric",
    )
    for name in ("Trainer", "Fabric", "pytorch.Trainer", "fabric.Fabric")
)
OF_SEVERAL = re.compile(
    r"\b(?:ddp\w*|fsdp\w*|deepspeed\w*|DDPStrategy|FSDPStrategy|DeepSpeedStrategy)\b"
)
"""Strategies in which each process has rows of its own"""


def lightning_trainers(module: Module) -> Iterator[Call]:
    """The calls that make a Trainer, or a Fabric, of Lightning."""
    yield from module.calls(*LIGHTNING)


def starts_lightning_processes(module: Module) -> bool:
    """Does Lightning start several processes for this file?"""
    return any(_is_of_several(module, call) for call in lightning_trainers(module))


def _is_of_several(module: Module, call: Call) -> bool:
    """Is a Trainer for several processes?"""
    nodes, devices = (call.keywords.get(key) for key in ("num_nodes", "devices"))
    if _counts_several(module, nodes) or _counts_several(module, devices):
        return True
    strategy = call.keywords.get("strategy")
    if strategy is None or (devices is not None and _is_one(module, devices)):
        return False
    return any(
        OF_SEVERAL.search(ast.unparse(origin.node))
        for origin in module.flow.origins(strategy)
        if isinstance(origin.node, ast.expr)
    )


def _is_one(module: Module, devices: ast.expr) -> bool:
    """Is it one device whatever is given: `devices=1`, `devices=[0]`?"""
    value = module.flow.value(devices)
    is_number = isinstance(devices, ast.Constant) or isinstance(value, int)
    return (is_number and value in (1, "1")) or (isinstance(value, list) and len(value) == 1)


def _counts_several(module: Module, count: ast.expr | None) -> bool:
    """Is it a plain number above one, or a list of several devices?"""
    value = module.flow.value(count) if count is not None else None
    if isinstance(value, list | tuple):
        return len(value) > 1
    if isinstance(value, str) and value.isdecimal():
        return int(value) > 1
    return type(value) is int and value > 1
