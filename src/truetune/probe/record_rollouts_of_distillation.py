"""Records the first completions that TRL's DistillationTrainer samples from its student.

They fill the same record as the rollouts of a training by rewards, without rewards, advantages and losses: prompts,
masks, stops and ids are judged by the same rules.

The trade-off: what the loss makes of these completions is not noted; the law `distillation` has asked it before the
run, on made-up ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from truetune.probe.record_rollouts_of_trl_trainer import RolloutRecorder, step_of_output
from truetune.probe.rollout_step import DISTILLATION

NEEDED_METHODS = ("_generate_and_score_completions", "training_step")
OF_DISTILLATION = "the loss of a distillation"


def can_record_distillation(trainer: Any) -> bool:
    """Is it TRL's DistillationTrainer, or a class made from it? Asked of its class alone."""
    names = [base.__name__ for base in type(trainer).__mro__]
    return "DistillationTrainer" in names and all(
        callable(getattr(type(trainer), name, None)) for name in NEEDED_METHODS
    )


class DistillationRecorder(RolloutRecorder):
    """Notes the first completions of a DistillationTrainer."""

    def _notes_by_method(self) -> tuple[tuple[str, Callable[..., Any]], ...]:
        return (
            ("_generate_single_turn", self._note_single_turn),
            ("_generate_and_score_completions", self._note_generation),
            ("training_step", self._note_end_of_pass),
        )

    def _note_generation(self, args: Any, kwargs: Mapping[str, Any], result: Any) -> None:
        """Note one generation."""
        sampled, turns = self._take_sampled()
        stops, self._sampler_stops = self._sampler_stops, None
        if not self._is_training():
            return
        rows = args[0] if args else kwargs.get("inputs")
        output = {**result, "advantages": torch.zeros(len(result["completion_ids"]))}
        step = step_of_output(self.trainer, output, rows, sampled, [], None, stops, turns)
        settings = replace(
            step.settings,
            loss_type=DISTILLATION,
            num_generations=1,
            unknown_to_loss=(OF_DISTILLATION,),
            unknown_to_advantages=(OF_DISTILLATION,),
        )
        self.steps.append(replace(step, settings=settings, steps_at_start=self.steps_at_start))
        self._passes_of_steps.append([])

    def _note_end_of_pass(self, args: Any, kwargs: Mapping[str, Any], result: Any) -> Any:
        """Count a micro-batch; after the last one what `complete` says."""
        self._passes += bool(self.steps)
        return self._verdict_if_complete()
