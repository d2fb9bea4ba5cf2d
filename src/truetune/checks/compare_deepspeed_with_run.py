"""Compares what DeepSpeed's settings say with what a Trainer's settings say of the same thing.

Of a schedule and an optimizer the Trainer takes DeepSpeed's, and says nothing. Numbers and the precision it compares
(`fill_match`, `trainer_config_finalize`), and stops. Source: transformers/integrations/deepspeed.py, 4.57.
"""

from __future__ import annotations

from collections.abc import Mapping

SCHEDULES: Mapping[str, tuple[str, ...]] = {
    "WarmupLR": ("constant",),
    "WarmupDecayLR": (
        "linear",
        "polynomial",
    ),  # the Trainer's polynomial has the power 1 unless told otherwise
    "WarmupCosineLR": ("cosine",),
    "OneCycle": ("one_cycle", "onecycle"),
    "LRRangeTest": (),
}
"""Schedule of DeepSpeed -> how the names of the Trainer's schedules of the same form begin"""
COURSES: Mapping[str, str] = {
    "WarmupLR": "warms up and then stays at its peak",
    "WarmupDecayLR": "warms up and falls in a line to zero",
    "WarmupCosineLR": "warms up and falls along a cosine",
    "OneCycle": "goes up and down in cycles",
    "LRRangeTest": "only grows",
}
"""Schedule of DeepSpeed -> how its learning rate runs"""
ADAMS = frozenset(("adam", "adamw", "cpuadam", "fusedadam", "deepspeedcpuadam"))
"""Names of DeepSpeed's Adam, in small letters"""
ADAMS_OF_TRAINER = frozenset((
    "adam", "adamw", "adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_apex_fused", "adamw_torch_xla",
    "adamw_torch_npu_fused", "paged_adamw", "paged_adamw_32bit",
))  # fmt: skip
"""The Trainer's names of an Adam with states of full size"""


def does_deepspeed_replace_schedule(scheduler: object, run_schedule: object) -> bool:
    """Does DeepSpeed's schedule run otherwise than the one that the run names?

    False for a schedule that is not known, or named by neither.
    """
    own = SCHEDULES.get(scheduler) if isinstance(scheduler, str) else None
    if own is None or not isinstance(run_schedule, str):
        return False
    return not run_schedule.lower().removeprefix("schedulertype.").startswith(own)


def does_deepspeed_replace_optimizer(optimizer: object, run_optimizer: object) -> bool:
    """Is DeepSpeed's optimizer another one than the run names? False where one of them names none."""
    if not isinstance(optimizer, str) or not isinstance(run_optimizer, str):
        return False
    own = optimizer.lower()
    wanted = run_optimizer.lower().removeprefix("optimizernames.")
    if own in ADAMS:
        return wanted not in ADAMS_OF_TRAINER
    return own not in wanted
