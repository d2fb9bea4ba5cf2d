"""Puts back what looking at a run draws, counts or sets: random states, attributes, switches of torch.

`preserve_state(*holders)` saves the global random generators, and of each holder (a sampler, a data set, a collator)
its attributes, the generators that it reaches, and its small containers. `preserve_process_state(trainer)` adds what a
process has one of: environment, working folder, warning filters, torch's switches.

Trade-off: state is saved by a rule about kinds of values, not by a deep copy. A deep copy of a data set may need all
of the memory, and an object on a device or a file can't be copied. So a large container, or one of objects, is not
put back; the hook avoids the question where it can by looking in a forked copy (`truetune.probe.forked_process`).
"""

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

# The modules of torch that have generators of their own. A generator that is not put back shifts every dropout mask of
# the run that follows, so its losses differ from those of the same run without the hook.
DEVICE_MODULES = ("cuda", "xpu", "npu")

# The methods through which a loader calls a data set or a collator: what their code names may hold a generator.
DATA_METHODS = ("__call__", "__getitem__", "__getitems__", "__iter__", "torch_call")

# Chosen, not measured. A copy of so many items takes milliseconds and a few MB. With half of it, a sampler's list of
# 50,000 indices would stay consumed; with a large number, a data set that is one list would be copied on each look.
MAX_CONTAINER_ITEMS = 65536

Restorer = Callable[[], Any]


@contextmanager
def preserve_state(*holders: Any) -> Iterator[None]:
    """Restore random states, and what the holders keep, when the block ends, also by an error.

    Restored are the generators of Python, numpy, torch and its devices; and of each holder its attributes, its
    generators, those that its code names, and its small containers of numbers and texts.

    Args:
        holders: samplers, data sets, collators or functions; anything else is harmless.
    """
    restorers = [
        *_save_rngs_and_yield_restorers(),
        *(one for holder in holders for one in _save_holder_and_yield_restorers(holder)),
    ]
    try:
        yield
    finally:
        for restore in restorers:
            restore()


@contextmanager
def preserve_process_state(trainer: Any) -> Iterator[None]:
    """Restore what a process has one of, and the trainer's attributes, when the block ends.

    That is: environment, working folder, `sys.path`, warning filters, logging, random states, torch's default dtype,
    its switches of determinism and of cudnn, and whether gradients are made.

    Args:
        trainer: any object with a `__dict__`.
    """
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
        # Folder and environment are written only if they changed: `clear` leaves a moment without any variable, in
        # which another thread of the user's program (a logger, a tokenizer pool) could read the environment.
        if os.getcwd() != folder:
            os.chdir(folder)
        if dict(os.environ) != environ:
            os.environ.clear()
            os.environ.update(environ)
        # In place: other modules hold these very lists.
        sys.path[:] = path
        warnings.filters[:] = filters  # type: ignore[index]
        logging.disable(disabled)
        vars(trainer).clear()
        vars(trainer).update(attributes)
        torch.set_default_dtype(dtype)
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        cudnn.benchmark, cudnn.deterministic, cudnn.enabled = switches
        torch.set_grad_enabled(gradients)


def _save_rngs_and_yield_restorers() -> Iterator[Restorer]:
    """Yield a restorer for each generator that all code of the process shares."""
    yield _function_that_restores(random.setstate, random.getstate())
    yield _function_that_restores(np.random.set_state, np.random.get_state())
    yield _function_that_restores(torch.set_rng_state, torch.get_rng_state())
    for name in DEVICE_MODULES:
        device = getattr(torch, name, None)
        if device is not None and device.is_available():
            yield _function_that_restores(device.set_rng_state_all, device.get_rng_state_all())


def _save_holder_and_yield_restorers(holder: Any) -> Iterator[Restorer]:
    """Yield restorers for the attributes, small containers and generators of one object."""
    attributes = dict(vars(holder)) if hasattr(holder, "__dict__") else {}
    if attributes:
        # The dictionary is emptied first, so that an attribute which was added meanwhile (a lazy cache) is gone again:
        # `test_everything_is_put_back` looks for one. Without it, a data set that counts its own reads, or a collator
        # that sets a flag at its first call, would behave otherwise in the run than without the hook.
        yield lambda: (vars(holder).clear(), vars(holder).update(attributes))
    for value in attributes.values():
        # `vars` holds the container, not its contents: a list that was appended to is refilled in place, since other
        # objects may hold the same list.
        if isinstance(value, dict | list | set | deque) and _is_small_container_of_immutables(
            value
        ):
            yield _function_that_restores(_refill_container, value, copy.copy(value))
    for value in (*attributes.values(), *_values_named_by_code(holder)):
        if isinstance(value, torch.Generator):
            yield _function_that_restores(value.set_state, value.get_state())
        elif isinstance(value, random.Random):
            yield _function_that_restores(value.setstate, value.getstate())
        elif isinstance(value, np.random.RandomState):
            yield _function_that_restores(value.set_state, value.get_state())
        elif isinstance(value, np.random.Generator):
            yield _function_that_restores(
                setattr, value.bit_generator, "state", value.bit_generator.state
            )


def _values_named_by_code(holder: Any) -> Iterator[Any]:
    """Yield what a function, or the data methods of an object, name outside themselves.

    A collator is often a closure over `rng = random.Random(0)`, or a method that draws from a generator of its module.
    Neither stands among the holder's attributes. Without this walk through closures and globals such a generator
    would have advanced, and the first batch of the run would be another one
    (`test_a_function_and_what_it_closes_over`, and `test_everything_is_put_back` for a module's generator).
    """
    functions = [getattr(type(holder), name, None) for name in DATA_METHODS]
    for function in (holder, *functions):
        if isinstance(function, FunctionType):
            for cell in function.__closure__ or ():
                with suppress(ValueError):  # a cell that is not filled yet
                    yield cell.cell_contents
            yield from (function.__globals__.get(name) for name in function.__code__.co_names)


def _function_that_restores(act: Callable[..., Any], *state: Any) -> Restorer:
    """A function that calls `act(*state)`; a lambda in the loops above would see their last value only."""
    return lambda: act(*state)


def _is_small_container_of_immutables(container: Any) -> bool:
    """Does it hold few items, all of which can't change themselves, so that a shallow copy is a whole one?"""
    values = container.values() if isinstance(container, dict) else container
    return len(container) <= MAX_CONTAINER_ITEMS and all(
        isinstance(value, str | int | float | None) for value in values
    )


def _refill_container(container: Any, before: Any) -> None:
    """Give a list, deque, set or dictionary its former contents, in place."""
    container.clear()
    if hasattr(container, "extend"):
        container.extend(before)
    else:
        container.update(before)
