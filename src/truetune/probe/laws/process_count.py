"""The number of processes changes nothing: a step of two processes is that of one with the rows of both.

Both processes are computed in this one, one after the other: the trainer is told that there are two, gets the count of
tokens that it would have gathered, and the two gradients are averaged as DDP does. That is exact for what a Trainer
does; a process group of the user's own is not looked at.
"""

from __future__ import annotations

from truetune.probe.laws import Cost
from truetune.probe.laws.gradient_accumulation import (
    gradient_of_one_batch,
    gradient_tolerance,
    refuse_difference_by_fused_attention,
    rows_of_unequal_length,
)
from truetune.probe.measuring.law_input_and_result_types import Measured, Trial
from truetune.probe.measuring.trainer_gradients import (
    attention_without_blocks,
    choose_last_trained_parameters,
    collate_rows_on_device,
    fix_mode_without_waiting_for_processes,
    gradient_distance,
    num_items_in_batch,
    pretend_process_count,
    refuse_sampling,
    step_gradients,
)

# Quick, since both processes are computed in this one (see above) and none is started.
COST: Cost = "quick"


def measure_law(trial: Trial) -> Measured:
    """Measure the relative difference of the gradients of some tensors: of a step of two processes, and of
    one with all rows.
    """
    rows = rows_of_unequal_length(trial)
    half = len(rows) // 2
    with (
        fix_mode_without_waiting_for_processes(trial),
        attention_without_blocks(trial, rows) as whole,
        refuse_sampling(),
    ):
        parameters = list(choose_last_trained_parameters(trial.model).values())
        ranks = [
            collate_rows_on_device(trial, part) for part in (rows[:half], rows[half : 2 * half])
        ]
        with pretend_process_count(trial, 1):
            one = gradient_of_one_batch(trial, rows[: 2 * half])
            counts = [num_items_in_batch(trial, [batch]) for batch in ranks]
        with pretend_process_count(trial, 2, counts):
            items = [num_items_in_batch(trial, [batch]) for batch in ranks]
        with pretend_process_count(trial, 2):
            each = [
                step_gradients(trial, [batch], parameters, n)
                for batch, n in zip(ranks, items, strict=True)
            ]
        gradients = gradient_distance(one, [(a + b) / 2 for a, b in zip(*each, strict=True)])
    args = trial.trainer.args
    evidence = gradients | {
        "tokens": [None if count is None else int(count) for count in counts],
        "average_tokens_across_devices": getattr(args, "average_tokens_across_devices", None),
        "world": args.world_size,
    }
    tolerance = gradient_tolerance(trial)
    refuse_difference_by_fused_attention(trial, gradients["relative"], tolerance, whole=whole)
    return Measured(
        gradients["relative"],
        tolerance,
        "relative difference of gradients",
        evidence,
    )
