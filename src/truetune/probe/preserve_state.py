"""Looking without a trace: whatever is drawn, counted or set inside `still` is put back."""

from __future__ import annotations

import copy
import logging
import os
import random
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FunctionType
from typing import Any

import numpy as np
import torch

DEVICE_MODULES = ("cuda", "xpu", "npu")
DATA_METHODS = ("__call__", "__getitem__", "__getitems__", "__iter__", "torch_call")
MAX_CONTAINER_ITEMS = 65536
"""Items of a container up to which its contents are kept"""
Restorer = Callable[[], Any]


@contextmanager
def preserve_state(*holders: Any) -> Iterator[None]:
    """Restore the random states of Python, numpy, torch and all its devices; and of each holder (a sampler, a data
    set, a collator) its attributes, its generators, those that its code names, and its small containers of numbers
    and texts."""
    undo = [*_save_global_rngs(), *(again for holder in holders for again in _save_holder(holder))]
    try:
        yield
    finally:
        for again in undo:
            again()


@contextmanager
def preserve_process_state(trainer: Any) -> Iterator[None]:
    """Restore what a process has one of, and the trainer's attributes: environment, working folder, logging, warnings,
    torch's defaults and switches, whether gradients are made."""
    folder, environ, path = os.getcwd(), dict(os.environ), list(sys.path)
    filters, disabled = list(warnings.filters), logging.root.manager.disable
    attributes = dict(vars(trainer))
    dtype, deterministic = torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    cudnn = torch.backends.cudnn
    switches = cudnn.benchmark, cudnn.deterministic, cudnn.enabled
    gradients = torch.is_grad_enabled()
    try:
        with preserve_state():
            yield
    finally:
        if os.getcwd() != folder:
            os.chdir(folder)
        if dict(os.environ) != environ:
            os.environ.clear()
            os.environ.update(environ)
        sys.path[:] = path
        warnings.filters[:] = filters  # type: ignore[index]
        logging.disable(disabled)
        vars(trainer).clear()
        vars(trainer).update(attributes)
        torch.set_default_dtype(dtype)
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        cudnn.benchmark, cudnn.deterministic, cudnn.enabled = switches
        torch.set_grad_enabled(gradients)


def _save_global_rngs() -> Iterator[Restorer]:
    yield _restorer(random.setstate, random.getstate())
    yield _restorer(np.random.set_state, np.random.get_state())
    yield _restorer(torch.set_rng_state, torch.get_rng_state())
    for name in DEVICE_MODULES:
        device = getattr(torch, name, None)
        if device is not None and device.is_available():
            yield _restorer(device.set_rng_state_all, device.get_rng_state_all())


def _save_holder(holder: Any) -> Iterator[Restorer]:
    attributes = dict(vars(holder)) if hasattr(holder, "__dict__") else {}
    if attributes:
        yield lambda: (vars(holder).clear(), vars(holder).update(attributes))
    for value in attributes.values():
        if isinstance(value, dict | list | set | deque) and _is_small_and_plain(value):
            yield _restorer(_refill_container, value, copy.copy(value))
    for value in (*attributes.values(), *_values_named_by_code(holder)):
        if isinstance(value, torch.Generator):
            yield _restorer(value.set_state, value.get_state())
        elif isinstance(value, random.Random):
            yield _restorer(value.setstate, value.getstate())
        elif isinstance(value, np.random.RandomState):
            yield _restorer(value.set_state, value.get_state())
        elif isinstance(value, np.random.Generator):
            yield _restorer(setattr, value.bit_generator, "state", value.bit_generator.state)


def _values_named_by_code(holder: Any) -> Iterator[Any]:
    """What a function, or the methods by which a data set or collator is used, name outside themselves."""
    functions = [getattr(type(holder), name, None) for name in DATA_METHODS]
    for function in (holder, *functions):
        if isinstance(function, FunctionType):
            for cell in function.__closure__ or ():
                with suppress(ValueError):  # not yet filled
                    yield cell.cell_contents
            yield from (function.__globals__.get(name) for name in function.__code__.co_names)


def _restorer(act: Callable[..., Any], *state: Any) -> Restorer:
    return lambda: act(*state)


def _is_small_and_plain(container: Any) -> bool:
    values = container.values() if isinstance(container, dict) else container
    return len(container) <= MAX_CONTAINER_ITEMS and all(
        isinstance(value, str | int | float | None) for value in values
    )


def _refill_container(container: Any, before: Any) -> None:
    container.clear()
    container.extend(before) if hasattr(container, "extend") else container.update(before)
