"""A model and its trainer as they were: whatever a law switches, counts or draws is put back."""

from __future__ import annotations

import copy
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from truetune.probe.preserve_state import preserve_state

# Elements of a buffer up to which it is kept: statistics and counters, not quantized weights.
SMALL = 65536
# What `gradient_checkpointing_enable` sets on a module.
SWITCHES = (
    "gradient_checkpointing",
    "_gradient_checkpointing_func",
    "_require_grads_hook",
    "_require_grads_hooks",
)
_ABSENT: Any = object()


@contextmanager
def restore_afterwards(*models: Any, trainer: Any = None) -> Iterator[None]:
    """Inside, no parameter has a gradient, and Python's warnings are not shown. Afterwards random states, training
    modes, gradients, small buffers, settings, checkpointing and the trainer's counters and metrics are as before.
    """
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(preserve_state())
        for model in models:
            if isinstance(model, torch.nn.Module):
                stack.enter_context(_restore_model(model))
        for holder in (trainer, getattr(trainer, "state", None), getattr(trainer, "control", None)):
            if holder is not None:
                stack.enter_context(_restore_counters(holder))
        yield


@contextmanager
def _restore_model(model: torch.nn.Module) -> Iterator[None]:
    modules = list(model.modules())
    modes = [(module, module.training) for module in modules]
    parameters = [(p, p.grad, p.requires_grad) for p in model.parameters()]
    buffers = [
        (m, name, b, b.detach().clone())
        for m in modules
        for name, b in m._buffers.items()
        if b is not None and b.numel() <= SMALL
    ]
    switches = [(m, name, vars(m).get(name, _ABSENT)) for m in modules for name in SWITCHES]
    hooks = [
        (m._forward_hooks, dict(m._forward_hooks))
        for m in modules
        if isinstance(m, torch.nn.Embedding)
    ]
    configs = {
        id(c): (c, _plain_attributes(c))
        for c in (vars(m).get("config") for m in modules)
        if hasattr(c, "__dict__")
    }
    for parameter, _, _ in parameters:
        parameter.grad = None
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
        for parameter, gradient, wanted in parameters:
            parameter.grad = gradient
            parameter.requires_grad = wanted
        with torch.no_grad():
            for module, name, buffer, kept in buffers:
                buffer.copy_(kept)
                module._buffers[name] = buffer
        for module, name, value in switches:
            if value is not _ABSENT:
                vars(module)[name] = value
            else:
                vars(module).pop(name, None)
        for current, before in hooks:
            if list(current) != list(before):
                current.clear()
                current.update(before)
        for config, settings in configs.values():
            vars(config).update(settings)


def _plain_attributes(holder: Any) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(holder).items()
        if isinstance(value, str | int | float | None)
    }


@contextmanager
def _restore_counters(holder: Any) -> Iterator[None]:
    """Numbers and texts of an object, and its containers of such."""
    simple, names = _plain_attributes(holder), set(vars(holder))
    containers = [
        (value, copy.deepcopy(value))
        for value in vars(holder).values()
        if isinstance(value, dict | list | deque) and _is_plain(value, 4)
    ]
    try:
        yield
    finally:
        for name in vars(holder).keys() - names:
            del vars(holder)[name]
        vars(holder).update(simple)
        for container, before in containers:
            container.clear()
            if isinstance(container, dict):
                container.update(before)
            else:
                container.extend(before)


def _is_plain(value: Any, depth: int) -> bool:
    if isinstance(value, dict):
        return depth > 0 and all(_is_plain(v, depth - 1) for v in value.values())
    if isinstance(value, list | tuple | deque):
        return depth > 0 and len(value) < SMALL and all(_is_plain(v, depth - 1) for v in value)
    return isinstance(value, str | int | float | None)
