"""Records the first rollouts of TRL's OnlineDPOTrainer, whose `training_step` samples, scores, and learns from pairs.

It stands before other methods than `RolloutRecorder`, and fills the same record: the two completions of a prompt stand
beside each other, as the completions of a group do. Which of them is chosen, and which tokens are in the loss, is read
from the gradient of the loss by the log-probabilities: the trainer holds neither in a place of its own.

The trade-off: the loss itself is not computed again, since a pair's gradient depends on the reference; what is judged
are its signs and its places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from truetune.probe.contain_own_failures_in_user_program import Lost
from truetune.probe.record_rollouts_of_trl_trainer import (
    NOT_MADE,
    RolloutRecorder,
    as_floats,
    as_ids,
    columns_of_rows,
    ids_of_tensor,
    plain_columns,
    precision_of,
    template_prompt_ids,
)
from truetune.probe.rollout_step import (
    ONLINE_DPO,
    LossPass,
    RewardCall,
    RolloutSettings,
    RolloutStep,
)
from truetune.probe.run_values_to_json import to_json

NEEDED_METHODS = ("_generate", "_calculate_rewards_from_functions", "_forward", "training_step")
OF_PAIRS = "the loss of pairs"


@dataclass
class _OpenStep:
    """What was noted of a step that is being made; rows are the first completions of all prompts, then the second."""

    prompt_ids: NDArray[np.int64]
    prompt_mask: NDArray[np.bool_]
    completion_ids: NDArray[np.int64]
    completion_mask: NDArray[np.bool_]
    rewards: NDArray[Any] | None = None
    logps: NDArray[Any] | None = None
    reference_logps: NDArray[Any] | None = None
    gradient: NDArray[Any] | None = None
    calls: list[RewardCall] = field(default_factory=list)

    def note_gradient(self, gradient: torch.Tensor) -> None:
        """Keep the gradient by the log-probabilities."""
        self.gradient = as_floats(gradient)


def can_record_online_dpo(trainer: Any) -> bool:
    """Is it TRL's OnlineDPOTrainer, or a class made from it? Asked of its class alone."""
    names = [base.__name__ for base in type(trainer).__mro__]
    return "OnlineDPOTrainer" in names and all(
        callable(getattr(type(trainer), name, None)) for name in NEEDED_METHODS
    )


class OnlineDpoRecorder(RolloutRecorder):
    """Notes the first rollouts of an OnlineDPOTrainer."""

    _open: _OpenStep | None = None

    def _notes_by_method(self) -> tuple[tuple[str, Callable[..., Any]], ...]:
        return (
            ("_generate", self._note_completions),
            ("_calculate_rewards_from_functions", self._note_rewards),
            ("_forward", self._note_logps),
            ("training_step", self._note_end_of_pass),
        )

    def _note_completions(self, args: Any, kwargs: Mapping[str, Any], result: Any) -> None:
        """Note the completions of a step."""
        if not self._is_training():
            return
        prompt_ids, prompt_mask, completion_ids, completion_mask = result[:4]
        self._open = _OpenStep(
            ids_of_tensor(prompt_ids),
            ids_of_tensor(prompt_mask).astype(np.bool_),
            ids_of_tensor(completion_ids),
            ids_of_tensor(completion_mask).astype(np.bool_),
        )

    def _note_rewards(self, args: Any, kwargs: Mapping[str, Any], result: Any) -> None:
        """Note the rewards, before any penalty."""
        calls, self._calls = self._calls, []
        if self._open is not None:
            self._open.rewards, self._open.calls = as_floats(result), calls

    def _note_logps(self, args: Any, kwargs: Mapping[str, Any], result: Any) -> None:
        """Note the log-probabilities, and listen to the gradient of the policy's."""
        if self._open is None or not isinstance(result, torch.Tensor):
            return
        if not result.requires_grad:
            self._open.reference_logps = as_floats(result)
            return
        self._open.logps = as_floats(result)
        listening = self._listening(self._open.note_gradient)
        if type(listening) is not FunctionType:
            raise Lost(NOT_MADE)
        # torch has no type for it.
        listened: Any = result
        listened.register_hook(listening)

    def _note_end_of_pass(self, args: Any, kwargs: Mapping[str, Any], result: Any) -> Any:
        """Note a step that was differentiated; after the last one what `complete` says."""
        one, self._open = self._open, None
        sampled, self._sampled = self._sampled, []
        stops, self._sampler_stops = self._sampler_stops, None
        if one is not None and one.logps is not None:
            inputs = kwargs.get("inputs", args[1] if len(args) > 1 else {})
            self.steps.append(
                replace(
                    _step_of_pairs(self.trainer, one, inputs, sampled, stops),
                    steps_at_start=self.steps_at_start,
                )
            )
            self._passes += 1
        return self._verdict_if_complete()

    def take(self) -> tuple[RolloutStep, ...]:
        """The steps that were noted, each with its one micro-batch; nothing is noted any more."""
        self.stop()
        return tuple(self.steps)


def _step_of_pairs(
    trainer: Any,
    one: _OpenStep,
    inputs: Mapping[str, Any],
    sampled: list[list[list[int]]],
    sampler_stops: tuple[int, ...] | None,
) -> RolloutStep:
    """The record of a step, the two completions of each prompt beside each other."""
    count = len(one.completion_ids)
    beside = np.arange(count).reshape(2, -1).T.ravel()
    whole = len(sampled) == 1 and len(sampled[0]) == count
    rows_of_prompts = _rows_of_inputs(inputs, count)
    rows = [rows_of_prompts[place] for place in beside] if rows_of_prompts else []
    gradient = _rows_in_order(one.gradient, beside)
    rewards = _rows_in_order(one.rewards, beside)
    in_loss = _tokens_in_loss(one.completion_mask[beside], gradient)
    settings = _settings(trainer, sampler_stops)
    passed = LossPass(
        completion_ids=one.completion_ids[beside],
        in_loss=in_loss,
        advantages=_directions(gradient, count),
        logps=np.asarray(one.logps)[beside],
        reference_logps=_rows_in_order(one.reference_logps, beside),
        logp_gradient=gradient,
        optimizer_step=int(trainer.state.global_step),
        accumulated=int(getattr(trainer, "current_gradient_accumulation_steps", 0) or 1),
    )
    return RolloutStep(
        settings=settings,
        prompt_ids=one.prompt_ids[beside],
        prompt_mask=one.prompt_mask[beside],
        completion_ids=one.completion_ids[beside],
        in_loss=in_loss,
        advantages=passed.advantages,
        rewards=None if rewards is None else rewards[:, None],
        reward_penalty=_penalty_of_cut_answers(trainer, one, settings.trainer_stops)[beside],
        reward_names=(" + ".join(map(str, getattr(trainer, "reward_func_names", ()) or ())),),
        prompts=tuple(to_json(row.get("prompt")) for row in rows),
        template_prompt_ids=template_prompt_ids(trainer, rows),
        columns=plain_columns(columns_of_rows(rows), count) if rows else None,
        sampled_ids=tuple(tuple(sampled[0][place]) for place in beside) if whole else None,
        reward_calls=tuple(_call_beside(call, beside) for call in one.calls),
        passes=(passed,),
        optimizer_step=passed.optimizer_step,
        rank=int(trainer.accelerator.process_index),
    )


def _rows_of_inputs(inputs: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """The row of each completion; none where the inputs are not one list for each column."""
    lists = {
        name: values
        for name, values in inputs.items()
        if isinstance(values, list) and 2 * len(values) == count
    }
    if "prompt" not in lists:
        return []
    half = [{name: values[row] for name, values in lists.items()} for row in range(count // 2)]
    return [*half, *half]


def _rows_in_order(values: NDArray[Any] | None, order: NDArray[np.int64]) -> NDArray[Any] | None:
    """The rows of an array in another order; None where there is no array."""
    return None if values is None else values[order]


def _tokens_in_loss(mask: NDArray[np.bool_], gradient: NDArray[Any] | None) -> NDArray[np.bool_]:
    """(completions, tokens) that the loss depends on; of a completion with no gradient at all what the mask says."""
    if gradient is None or gradient.shape != mask.shape:
        return mask
    heard = gradient != 0
    return np.where(heard.any(axis=1, keepdims=True), heard, mask)


def _directions(gradient: NDArray[Any] | None, count: int) -> NDArray[np.floating]:
    """(completions,) 1 where the loss makes a completion likelier, -1 where less likely, 0 where neither."""
    if gradient is None:
        return np.zeros(count)
    return np.asarray(-np.sign(gradient.sum(axis=1)), dtype=np.float64)


def _penalty_of_cut_answers(
    trainer: Any, one: _OpenStep, stops: tuple[int, ...]
) -> NDArray[np.float64]:
    """(completions,) what TRL subtracts from the rewards of completions without a stop token."""
    penalty = float(getattr(trainer.args, "missing_eos_penalty", None) or 0.0)
    return np.where(np.isin(one.completion_ids, stops).any(axis=1), 0.0, penalty)


def _call_beside(call: RewardCall, beside: NDArray[np.int64]) -> RewardCall:
    """A call of a reward function with its completions in the record's order."""
    if len(call.values) != len(beside):
        return call
    columns = {name: [values[place] for place in beside] for name, values in call.columns.items()}
    return replace(call, values=tuple(call.values[place] for place in beside), columns=columns)


def _settings(trainer: Any, sampler_stops: tuple[int, ...] | None) -> RolloutSettings:
    """The settings of the trainer."""
    tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
    generation = getattr(trainer, "generation_config", None)
    return RolloutSettings(
        loss_type=f"{ONLINE_DPO} {getattr(trainer.args, 'loss_type', '')}".strip(),
        num_generations=2,
        max_completion_length=int(getattr(trainer.args, "max_new_tokens", 0) or 0),
        processes=int(trainer.accelerator.num_processes),
        trainer_stops=as_ids(getattr(trainer, "eos_token_ids", tokenizer.eos_token_id)),
        sampler_stops=as_ids(getattr(generation, "eos_token_id", None))
        if sampler_stops is None
        else sampler_stops,
        pad=tokenizer.pad_token_id,
        precision=precision_of(trainer),
        unknown_to_loss=(OF_PAIRS,),
        unknown_to_advantages=(OF_PAIRS,),
    )
