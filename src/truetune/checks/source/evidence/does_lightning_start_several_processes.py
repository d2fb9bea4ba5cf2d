"""Says what belongs to Lightning in a script, and whether Lightning starts several processes, by
its devices or its strategy.

A number of devices that comes from the command line says nothing by itself. A strategy of several
processes that stands in the code beside it does: whoever writes `"ddp" if devices > 1 else "auto"`
runs both.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

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


def is_in_lightning_module(module: Module, node: ast.AST) -> bool:
    """Is it a part of a class that is derived from a LightningModule?"""
    owner = next((one for one in module.parents(node) if isinstance(one, ast.ClassDef)), None)
    if owner is None:
        return False
    return any(base.endswith("LightningModule") for base in module.flow.bases(owner))


def lightning_trainer_or_fabric_calls(module: Module) -> Iterator[Call]:
    """The calls that make a Trainer, or a Fabric, of Lightning."""
    yield from module.calls(*LIGHTNING)


def starts_lightning_processes(module: Module) -> bool:
    """Does Lightning start several processes for this file?"""
    return any(
        several_processes_argument(module, call)
        for call in lightning_trainer_or_fabric_calls(module)
    )


def several_processes_argument(module: Module, call: Call) -> str:
    """What makes a Trainer one of several processes, as it is written; empty where nothing does."""
    for key in ("devices", "num_nodes"):
        count = call.keywords.get(key)
        if count is not None and _is_number_or_list_of_several_devices(module, count):
            return f"{key}={ast.unparse(count)}"
    strategy, devices = call.keywords.get("strategy"), call.keywords.get("devices")
    if strategy is None or (devices is not None and _is_always_one_device(module, devices)):
        return ""
    origins = [one.node for one in module.flow.origins(strategy) if isinstance(one.node, ast.expr)]
    is_of_several = any(OF_SEVERAL.search(ast.unparse(one)) for one in origins)
    return f"strategy={ast.unparse(strategy)}" if is_of_several else ""


def _is_always_one_device(module: Module, devices: ast.expr) -> bool:
    """Is it one device whatever is given: `devices=1`, `devices=[0]`?"""
    value = module.flow.value(devices)
    is_number = isinstance(devices, ast.Constant) or isinstance(value, int)
    return (is_number and value in (1, "1")) or (isinstance(value, list) and len(value) == 1)


def _is_number_or_list_of_several_devices(module: Module, count: ast.expr) -> bool:
    """Is it a plain number above one, or a list of several devices?"""
    value = module.flow.value(count)
    if isinstance(value, list | tuple):
        return len(value) > 1
    if isinstance(value, str) and value.isdecimal():
        return int(value) > 1
    return type(value) is int and value > 1
