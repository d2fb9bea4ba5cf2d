"""The number of processes changes nothing: a step of two processes is that of one with the rows of both.

Both processes are computed in this one, one after the other: the trainer is told that there are two, gets the count of
tokens that it would have gathered, and the two gradients are averaged as DDP does. That is exact for what a Trainer
does; a process group of the user's own is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from truetune.probe.laws import Cost, Measured, Trial
from truetune.probe.laws.gradient_accumulation import comparable, tolerance
from truetune.probe.laws.gradients import apart, batch_of, counted, quiet, replaced, some, step

COST: Cost = "quick"


def measure(trial: Trial) -> Measured:
    """Relative difference of the gradients of some tensors."""
    rows = comparable(trial)
    half = len(rows) // 2
    with quiet(trial):
        parameters = list(some(trial.model).values())
        ranks = [batch_of(trial, part) for part in (rows[:half], rows[half : 2 * half])]
        with processes(trial, 1):
            one = step(trial, [batch_of(trial, rows[: 2 * half])], parameters)
            counts = [counted(trial, [batch]) for batch in ranks]
        with processes(trial, 2, counts):
            items = [counted(trial, [batch]) for batch in ranks]
        with processes(trial, 2):
            each = [step(trial, [batch], parameters, n) for batch, n in zip(ranks, items, strict=True)]
        found = apart(one, [(a + b) / 2 for a, b in zip(*each, strict=True)])
    args = trial.trainer.args
    evidence = found | {
        "tokens": [None if count is None else int(count) for count in counts],
        "average_tokens_across_devices": getattr(args, "average_tokens_across_devices", None),
        "world": args.world_size,
    }
    return Measured(found["relative"], tolerance(trial), "relative difference of gradients", evidence)


@contextmanager
def processes(trial: Trial, count: int, tokens: list[Any] | None = None) -> Iterator[None]:
    """The trainer's accelerator says that there are so many processes; with `tokens`, it gathers these."""
    accelerator = trial.trainer.accelerator
    states = {id(vars(s)): s for s in (accelerator.state, getattr(trial.trainer.args, "distributed_state", None)) if s}
    with ExitStack() as stack:
        for state in states.values():
            stack.enter_context(replaced(state, "num_processes", count))
        if tokens is not None and isinstance(tokens[0], torch.Tensor):
            stack.enter_context(replaced(accelerator, "gather", lambda *_, **__: torch.stack(tokens)))
        yield
