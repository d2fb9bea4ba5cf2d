"""The number of processes changes nothing: a step of two processes is that of one with the rows of both.

Both processes are computed in this one, one after the other: the trainer is told that there are two, gets the count of
tokens that it would have gathered, and the two gradients are averaged as DDP does. That is exact for what a Trainer
does; a process group of the user's own is not looked at.
"""

from __future__ import annotations

from truetune.probe.laws import Cost, Measured, Trial
from truetune.probe.laws.gradient_accumulation import comparable, together, tolerance
from truetune.probe.laws.gradients import apart, batch_of, counted, processes, quiet, some, step

COST: Cost = "quick"


def measure(trial: Trial) -> Measured:
    """Relative difference of the gradients of some tensors."""
    rows = comparable(trial)
    half = len(rows) // 2
    with quiet(trial):
        parameters = list(some(trial.model).values())
        ranks = [batch_of(trial, part) for part in (rows[:half], rows[half : 2 * half])]
        with processes(trial, 1):
            one = together(trial, rows[: 2 * half])
            counts = [counted(trial, [batch]) for batch in ranks]
        with processes(trial, 2, counts):
            items = [counted(trial, [batch]) for batch in ranks]
        with processes(trial, 2):
            each = [
                step(trial, [batch], parameters, n) for batch, n in zip(ranks, items, strict=True)
            ]
        found = apart(one, [(a + b) / 2 for a, b in zip(*each, strict=True)])
    args = trial.trainer.args
    evidence = found | {
        "tokens": [None if count is None else int(count) for count in counts],
        "average_tokens_across_devices": getattr(args, "average_tokens_across_devices", None),
        "world": args.world_size,
    }
    return Measured(
        found["relative"], tolerance(trial), "relative difference of gradients", evidence
    )
