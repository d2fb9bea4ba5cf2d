"""Looking without a trace: whatever is drawn or counted inside `still` is put back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


@contextmanager
def still(*holders: Any) -> Iterator[None]:
    """Restore the random states of Python, numpy, torch and all its devices, and of each holder (a sampler, a batch
    sampler, a data set) the numbers and generators that it keeps."""
    python, arrays, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None
    kept = [(holder, _numbers(holder), _generators(holder)) for holder in holders]
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)
        torch.set_rng_state(cpu)
        if devices is not None:
            torch.cuda.set_rng_state_all(devices)
        for holder, numbers, generators in kept:
            vars(holder).update(numbers)
            for generator, state in generators:
                generator.set_state(state)


def _numbers(holder: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(holder).items() if isinstance(value, int | float | None)}


def _generators(holder: Any) -> list[tuple[torch.Generator, torch.Tensor]]:
    return [(value, value.get_state()) for value in vars(holder).values() if isinstance(value, torch.Generator)]
