"""Chooses what records the rollouts of a trainer: TRL's trainers sample in different methods.

The trade-off: a trainer is known by its methods and by the names of its classes, so that a release that renames them is
not recorded; its run is said to be not judged then.
"""

from __future__ import annotations

from typing import Any

from truetune.probe.record_rollouts_of_distillation import (
    DistillationRecorder,
    can_record_distillation,
)
from truetune.probe.record_rollouts_of_online_dpo import OnlineDpoRecorder, can_record_online_dpo
from truetune.probe.record_rollouts_of_trl_trainer import RolloutRecorder, can_record_rollouts


def are_rollouts_recorded(trainer: Any) -> bool:
    """Is it a trainer whose rollouts can be recorded? Asked of its class alone, as instances may answer anything."""
    return (
        can_record_rollouts(trainer)
        or can_record_online_dpo(trainer)
        or can_record_distillation(trainer)
    )


def make_rollout_recorder(trainer: Any, max_passes: int, **settings: Any) -> RolloutRecorder:
    """What records the rollouts of this trainer; `settings` are those of `RolloutRecorder`."""
    if can_record_online_dpo(trainer):
        return OnlineDpoRecorder(trainer, max_passes, **settings)
    if can_record_distillation(trainer):
        return DistillationRecorder(trainer, max_passes, **settings)
    return RolloutRecorder(trainer, max_passes, **settings)
