"""Leaves a model and its trainer as they were: whatever a law switches, counts or draws is put back.

A law runs forward and backward passes on the run's own model, just before it trains.
`restore_afterwards` notes what such passes may change and restores it when the block ends, also by an
error.

Trade-off: weights are not copied, since a copy may not fit beside the model. A law that changes weights does so in a
copy of the process, or puts them back itself.
"""

from __future__ import annotations

import copy
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from typing import Any

import torch

from truetune.probe.restore_state_changed_by_observing_run import preserve_state

# Elements of a buffer up to which it is kept: statistics and counters, not quantized weights. Chosen, not measured: the
# buffers of a batch norm or a rotary embedding are far below; those of a quantized layer are far above.
MAX_BUFFER_ELEMENTS = 65536
# What `gradient_checkpointing_enable` sets on a module.
CHECKPOINTING_ATTRIBUTES = (
    "gradient_checkpointing",
    "_gradient_checkpointing_func",
    "_require_grads_hook",
    "_require_grads_hooks",
)
_ABSENT: Any = object()


@contextmanager
def restore_afterwards(*models: Any, trainer: Any = None) -> Iterator[None]:
    """Inside, no parameter has a gradient, and Python's warnings are not shown. Afterwards random states, training
    modes, gradients, small buffers, settings, checkpointing, the trainer's counters and metrics, and what its
    `compute_loss_func` keeps are as before.
    """
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        # A loss of the user's own may count its calls, or draw from a generator.
        stack.enter_context(preserve_state(getattr(trainer, "compute_loss_func", None)))
        for model in models:
            if isinstance(model, torch.nn.Module):
                stack.enter_context(_restore_model_but_weights(model))
        for holder in (trainer, getattr(trainer, "state", None), getattr(trainer, "control", None)):
            if holder is not None:
                stack.enter_context(_restore_numbers_texts_and_containers(holder))
        yield


@contextmanager
def _restore_model_but_weights(model: torch.nn.Module) -> Iterator[None]:
    """Keep what a forward or backward pass, or a switch of mode, changes in a model besides its weights."""
    modules = list(model.modules())
    modes = [(module, module.training) for module in modules]
    parameters = [(p, p.grad, p.requires_grad) for p in model.parameters()]
    buffers: list[SavedBuffer] = list(_small_buffers(modules))
    switches = [
        (module, name, vars(module).get(name, _ABSENT))
        for module, name in product(modules, CHECKPOINTING_ATTRIBUTES)
    ]
    # `gradient_checkpointing_enable` adds a hook to the input embedding, which would make its output need a gradient.
    embeddings = [module for module in modules if isinstance(module, torch.nn.Embedding)]
    hooks = [(layer._forward_hooks, dict(layer._forward_hooks)) for layer in embeddings]
    configs = _settings_of_configs(modules)
    # A gradient that already exists (of accumulation in progress) would be added to the law's own.
    for parameter, _, _ in parameters:
        parameter.grad = None
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
        for parameter, gradient, requires_grad in parameters:
            parameter.grad = gradient
            parameter.requires_grad = requires_grad
        _restore_buffers(buffers)
        _restore_module_attributes(switches)
        for current, before in hooks:
            _restore_hooks(current, before)
        for config, settings in configs:
            vars(config).update(settings)


SavedBuffer = tuple[torch.nn.Module, str, torch.Tensor, torch.Tensor]
"""A buffer: its module, its name, the tensor, and a copy of its values"""


def _small_buffers(modules: list[torch.nn.Module]) -> Iterator[SavedBuffer]:
    """Yield each buffer of at most SMALL elements."""
    for module in modules:
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.numel() <= MAX_BUFFER_ELEMENTS:
                yield module, name, buffer, buffer.detach().clone()


def _restore_buffers(buffers: list[SavedBuffer]) -> None:
    """Give buffers their former values; a module may have put another tensor in the place of one."""
    with torch.no_grad():
        for module, name, buffer, values in buffers:
            buffer.copy_(values)
            module._buffers[name] = buffer


def _settings_of_configs(modules: list[torch.nn.Module]) -> list[tuple[Any, dict[str, Any]]]:
    """Each configuration that a module holds, with its plain settings: passes set `use_cache` and the like."""
    configs = {id(c): c for c in (vars(m).get("config") for m in modules) if hasattr(c, "__dict__")}
    return [(config, _plain_attributes(config)) for config in configs.values()]


def _restore_hooks(current: dict[int, Any], before: dict[int, Any]) -> None:
    """Give a module its former hooks, in place: torch holds this very dictionary."""
    if list(current) != list(before):
        current.clear()
        current.update(before)


def _restore_module_attributes(switches: list[tuple[torch.nn.Module, str, Any]]) -> None:
    """Set the attributes of modules again; one that was not there is taken away."""
    for module, name, value in switches:
        # By `vars`, as a module's own `__setattr__` and `__delattr__` look for parameters first.
        if value is not _ABSENT:
            vars(module)[name] = value
        else:
            vars(module).pop(name, None)


def _plain_attributes(holder: Any) -> dict[str, Any]:
    """The attributes of an object that are texts, numbers or None."""
    return {
        name: value
        for name, value in vars(holder).items()
        if isinstance(value, str | int | float | None)
    }


@contextmanager
def _restore_numbers_texts_and_containers(holder: Any) -> Iterator[None]:
    """Numbers and texts of an object, and its containers of such."""
    simple, names = _plain_attributes(holder), set(vars(holder))
    containers = [
        (value, copy.deepcopy(value))
        for value in vars(holder).values()
        if isinstance(value, dict | list | deque) and _is_plain_to_depth(value, 4)
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


def _is_plain_to_depth(value: Any, depth: int) -> bool:
    """Is it made of texts, numbers and None alone, nested so deep at most? Else a copy could be of a whole model."""
    if isinstance(value, dict):
        return depth > 0 and all(_is_plain_to_depth(v, depth - 1) for v in value.values())
    if isinstance(value, list | tuple | deque):
        return (
            depth > 0
            and len(value) < MAX_BUFFER_ELEMENTS
            and all(_is_plain_to_depth(v, depth - 1) for v in value)
        )
    return isinstance(value, str | int | float | None)
