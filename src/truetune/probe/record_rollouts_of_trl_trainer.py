"""Records the first rollouts of a TRL trainer that samples its answers (GRPOTrainer, RLOOTrainer), as they are made.

`RolloutRecorder` stands some methods of one trainer behind functions that call them unchanged and note what they were
given and gave: what `generate` sampled, what `_generate_and_score_completions` makes of it, what the reward functions
were given and returned, what `compute_loss` was given, and the gradient of its log-probabilities. After so many
micro-batches the methods are put back.

- Only the trainer's own dictionary, and `GenerationMixin.generate` of transformers, are changed, and only as long.
- What is noted is copied to the CPU; nothing is computed, no random number is drawn, and no pass is made again.
- Each note runs inside of `run_contained`: whatever fails in it ends the recording, and not the training.

The trade-off: the names of these methods are TRL's own, so a release that renames one is not recorded; a callback would
be a public interface, and sees none of this.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from types import FunctionType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from truetune.probe.audit_time_limits_and_replies import STOP
from truetune.probe.contain_own_failures_in_user_program import Lost, run_contained
from truetune.probe.place_sampled_turns_in_completions import SampledTurn, place_turns
from truetune.probe.rollout_step import LossPass, RewardCall, RolloutSettings, RolloutStep
from truetune.probe.run_values_to_json import to_json

NEEDED_METHODS = ("_generate_and_score_completions", "_calculate_rewards", "compute_loss")
"""What a trainer must have to be recorded; each is called once for a generation or a micro-batch"""
NOT_MADE = "the functions that note rollouts were not made"
# A generation of more completions is recorded as well: the limit is on the texts of rows, which are for reading.
MAX_TEXT = 2_000
"""Characters of a column's value that is kept; a column with a longer one is left out"""
MAX_STEPS = 4
"""Steps of the optimizer after which it is judged at the latest: what a longer wait would add is more of the same"""
LOSS_SWITCHES: Mapping[str, Any] = {
    "top_entropy_quantile": 1.0,
    "off_policy_mask_threshold": None,
    "use_liger_kernel": False,
    "entropy_coef": 0.0,
    "use_adaptive_entropy": False,
    "fp16": False,
}
"""Settings of TRL's trainers that change a loss otherwise than `RolloutSettings` says, with the value that doesn't"""
ADVANTAGE_SWITCHES: Mapping[str, Any] = {
    "multi_objective_aggregation": "sum_then_normalize",
    "normalize_advantages": False,
    "reward_clip_range": None,
}
"""The same for advantages"""


def can_record_rollouts(trainer: Any) -> bool:
    """Is it a trainer whose rollouts can be recorded? Asked of its class alone, as instances may answer anything."""
    return all(callable(getattr(type(trainer), name, None)) for name in NEEDED_METHODS)


class RolloutRecorder:
    """Notes the first rollouts of one trainer, from `start` on, until it is complete or `stop` is called."""

    def __init__(
        self,
        trainer: Any,
        max_passes: int,
        *,
        lose: Callable[[str], Any],
        complete: Callable[[], Any] | None = None,
        seconds: float = 20.0,
        seconds_of_complete: float = 20.0,
    ) -> None:
        """
        Args:
            trainer: of a class for which `can_record_rollouts`.
            max_passes: micro-batches at most.
            lose: is given the reason where the recording fails; it is over then.
            complete: is called once when the last micro-batch was noted; where it returns STOP the program is ended.
            seconds: in which one note must be made.
            seconds_of_complete: in which `complete` must return.
        """
        self.trainer, self._lose, self._complete = trainer, lose, complete
        self._seconds, self._seconds_of_complete = seconds, seconds_of_complete
        arguments = trainer.args
        generated = int(getattr(arguments, "steps_per_generation", None) or 1)
        iterations = int(getattr(trainer, "num_iterations", 1) or 1)
        # All uses of the first generation, and the first use of a second one: rewards of two sets of prompts say more
        # than those of one, and no run waits for a third.
        accumulated = int(getattr(arguments, "gradient_accumulation_steps", None) or 1)
        wanted = min(max_passes, generated * (iterations + 1), MAX_STEPS * accumulated)
        self._wanted_passes = max(1, wanted)
        self.wanted_steps = -(-self._wanted_passes // accumulated)
        """Steps of the optimizer that these passes are; the same in each process of a run"""
        self.steps_at_start = int(trainer.state.global_step)
        self.steps: list[RolloutStep] = []
        """The generations that were noted, each with its passes"""
        self.over = False
        self._passes = 0
        self._passes_of_steps: list[list[_OpenPass]] = []
        self._put_back: list[Callable[[], Any]] = []
        self._sampled: list[list[list[int]]] = []
        self._turns: list[SampledTurn] = []
        self._calls_of_turns = 0
        """Calls of `generate` that the turns so far were made of"""
        self._sampler_stops: tuple[int, ...] | None = None
        self._calls: list[RewardCall] = []
        self._columns_of_call: dict[str, list[Any]] = {}
        self._rewards: NDArray[Any] | None = None
        self._logps: Any = None
        self._sampled_logps: list[NDArray[Any]] = []
        """Without a gradient, in the generation that is being made: of the policy, and then of the reference"""
        self._pass: Any = None

    @property
    def is_complete(self) -> bool:
        """Were all micro-batches noted that are wanted?"""
        return self._passes >= self._wanted_passes

    def start(self) -> None:
        """Begin to note. Raises Lost where the trainer's methods can't be stood behind others."""
        for name, note in self._notes_by_method():
            if callable(getattr(self.trainer, name, None)):
                self._stand_before_method(name, note)
        self._stand_before_generate()
        self._stand_before_reward_functions()

    def stop(self) -> None:
        """Note nothing any more, and put everything back; it may be called again."""
        self.over = True
        put_back, self._put_back = self._put_back, []
        for one in reversed(put_back):
            one()
        # The recorder may live longer than the training; the trainer shall not.
        self.trainer = self._logps = self._pass = None

    def take(self) -> tuple[RolloutStep, ...]:
        """The generations that were noted, with their passes; nothing is noted any more."""
        self.stop()
        return tuple(
            _with_passes(step, passes)
            for step, passes in zip(self.steps, self._passes_of_steps, strict=True)
        )

    def _notes_by_method(self) -> tuple[tuple[str, Callable[..., Any]], ...]:
        """The trainer's methods that are stood before, each with what notes it."""
        return (
            ("_generate_single_turn", self._note_single_turn),
            ("_calculate_rewards", self._note_rewards),
            ("_generate_and_score_completions", self._note_generation),
            ("_get_per_token_logps_and_entropies", self._note_logps),
            ("compute_loss", self._note_loss),
            ("training_step", self._note_end_of_pass),
        )

    # What stands before the program's own functions.

    def _noting(
        self,
        former: Callable[..., Any],
        note: Callable[..., Any],
        before: Callable[..., Any] | None = None,
    ) -> Callable[..., Any]:
        """A function that calls `former` unchanged, and then `note` with its arguments and its result.

        `before` is called first with the arguments, for a function that may change them.
        """
        lose, seconds = self._abandon, self._seconds
        ends_program = note == self._note_end_of_pass
        if ends_program:
            seconds += self._seconds_of_complete

        @wraps(former)
        def call(*args: Any, **kwargs: Any) -> Any:
            if before is not None and not self.over:
                run_contained(before, kwargs, on_failure=lose, seconds=seconds)
            try:
                result = former(*args, **kwargs)
            except BaseException as error:
                # This frame is taken out of the traceback: what the program prints must be what it prints without us.
                error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
                raise
            if self.over:
                return result
            verdict = run_contained(note, args, kwargs, result, on_failure=lose, seconds=seconds)
            # By identity: whatever else comes back here is no verdict.
            if ends_program and verdict is STOP:
                raise SystemExit(1)
            return result

        return call

    def _abandon(self, reason: str) -> None:
        """Lose the recording: nothing is noted any more, and the reason is told."""
        # First of all: whatever fails below, no further note is made.
        self.over = True
        try:
            self.stop()
        finally:
            self._lose(reason)

    def _stand_before_method(self, name: str, note: Callable[..., Any]) -> None:
        """Stand a noting function before a method of this trainer, in its own dictionary."""
        # Past any `__setattr__` of the class, which is the user's.
        attributes: dict[str, Any] = object.__getattribute__(self.trainer, "__dict__")
        had, former = name in attributes, getattr(self.trainer, name)
        noting = self._noting(former, note)
        # The program calls it outside of the boundary: whatever else was made must not get there.
        if type(noting) is not FunctionType:
            raise Lost(NOT_MADE)
        attributes[name] = noting

        def put_back() -> None:
            # One that the program has set meanwhile stays.
            if attributes.get(name) is not noting:
                return
            if had:
                attributes[name] = former
            else:
                del attributes[name]

        self._put_back.append(put_back)

    def _stand_before_generate(self) -> None:
        """Stand before `generate` of all models: one that stood on the model would be saved with it."""
        module = sys.modules.get("transformers.generation.utils")
        owner: Any = getattr(module, "GenerationMixin", None)
        if owner is None:
            return
        former = owner.generate
        noting = self._noting(former, self._note_generate)
        if type(noting) is not FunctionType:
            raise Lost(NOT_MADE)
        owner.generate = noting

        def put_back() -> None:
            if owner.generate is noting:
                owner.generate = former

        self._put_back.append(put_back)

    def _stand_before_reward_functions(self) -> None:
        """Stand before reward functions of Python; models and coroutines are called as they are."""
        attributes: dict[str, Any] = object.__getattribute__(self.trainer, "__dict__")
        former = attributes.get("reward_funcs")
        if not isinstance(former, list):
            return
        names = list(getattr(self.trainer, "reward_func_names", None) or ())
        noting = [
            self._noting(one, partial(self._note_reward_call, str(name)), self._note_reward_columns)
            if inspect.isfunction(one) and not inspect.iscoroutinefunction(one)
            else one
            for one, name in zip(former, [*names, *[""] * len(former)], strict=False)
        ]
        if any(
            type(ours) is not FunctionType
            for ours, own in zip(noting, former, strict=False)
            if ours is not own
        ):
            raise Lost(NOT_MADE)
        attributes["reward_funcs"] = noting

        def put_back() -> None:
            if attributes.get("reward_funcs") is noting:
                attributes["reward_funcs"] = former

        self._put_back.append(put_back)

    # What is noted.

    def _is_training(self) -> bool:
        """Is this a pass of the training, and none of an evaluation?"""
        return bool(self.trainer.model.training)

    def _note_generate(self, args: Any, kwargs: Mapping[str, Any], result: Any) -> None:
        """Note what a call of `generate` sampled: each completion up to its first stop."""
        ids = kwargs.get("input_ids", kwargs.get("inputs"))
        sequences = getattr(result, "sequences", result)
        if not isinstance(ids, torch.Tensor) or not isinstance(sequences, torch.Tensor):
            return
        # A reward function may ask a model of its own. Wrappers and adapters share the configuration of their model.
        if getattr(args[0], "config", None) is not getattr(self.trainer.model, "config", self):
            return
        config = kwargs.get("generation_config") or getattr(args[0], "generation_config", None)
        stops = as_ids(kwargs.get("eos_token_id", getattr(config, "eos_token_id", None)))
        self._sampler_stops = stops
        rows = sequences[:, ids.shape[1] :].detach().cpu().tolist()
        self._sampled.append([_up_to_first_stop(row, stops) for row in rows])

    def _note_single_turn(self, args: Any, kwargs: Mapping[str, Any], result: Any) -> None:
        """Note a turn: what the trainer's own sampler was given and gave, by `generate` where it calls that."""
        ids = result[0] if isinstance(result, tuple) else result
        if not isinstance(ids, list):
            return
        returned = _copy_token_lists(ids)
        if not self._sampled:
            self._sampled.append(returned)
        calls = self._sampled[self._calls_of_turns :]
        self._calls_of_turns = len(self._sampled)
        by_generate = len(calls) == 1 and len(calls[0]) == len(returned)
        prompts = kwargs.get("prompt_ids", args[0] if args else None)
        if isinstance(prompts, list) and len(prompts) == len(returned):
            sampled = calls[0] if by_generate else returned
            self._turns.append(SampledTurn(_copy_token_lists(prompts), sampled))

    def _note_reward_columns(self, kwargs: Mapping[str, Any]) -> None:
        """Note the columns that a reward function is given; it may sort or change these very lists."""
        count = len(kwargs.get("completions", ()))
        self._columns_of_call = plain_columns(kwargs, count)

    def _note_reward_call(
        self, name: str, args: Any, kwargs: Mapping[str, Any], result: Any
    ) -> None:
        """Note what a reward function was given and returned."""
        if not self._is_training():
            return
        values = tuple(None if value is None else float(value) for value in result)
        columns, self._columns_of_call = self._columns_of_call, {}
        self._calls.append(RewardCall(name, values, columns))

    def _note_rewards(self, args: Any, kwargs: Mapping[str, Any], result: Any) -> None:
        """Note the rewards of all processes."""
        self._rewards = as_floats(result)

    def _note_logps(self, args: Any, kwargs: Mapping[str, Any], result: Any) -> None:
        """Keep the log-probabilities of the policy until the loss is known."""
        logps = result[0] if isinstance(result, tuple) else result
        # Those of the reference, and those of the policy while it samples, need no gradient.
        if isinstance(logps, torch.Tensor) and logps.requires_grad:
            self._logps = logps
        elif isinstance(logps, torch.Tensor):
            self._sampled_logps.append(as_floats(logps))

    def _note_generation(self, args: Any, kwargs: Mapping[str, Any], result: Any) -> None:
        """Note one generation."""
        sampled, turns = self._take_sampled()
        calls, self._calls = self._calls, []
        logps, self._sampled_logps = self._sampled_logps, []
        rewards, self._rewards = self._rewards, None
        stops, self._sampler_stops = self._sampler_stops, None
        if not self._is_training():
            return
        rows = args[0] if args else kwargs.get("inputs")
        step = step_of_output(self.trainer, result, rows, sampled, calls, rewards, stops, turns)
        step = _with_penalty_of_rloo(self.trainer, step, logps)
        self.steps.append(replace(step, steps_at_start=self.steps_at_start))
        self._passes_of_steps.append([])

    def _take_sampled(self) -> tuple[list[list[list[int]]], list[SampledTurn]]:
        """What was sampled since the last generation: by calls of `generate`, and by turns."""
        sampled, self._sampled = self._sampled, []
        turns, self._turns = self._turns, []
        self._calls_of_turns = 0
        return sampled, turns

    def _note_loss(self, args: Any, kwargs: Mapping[str, Any], result: Any) -> None:
        """Note one micro-batch, and listen to the gradient of its log-probabilities."""
        logps, self._logps = self._logps, None
        inputs = kwargs.get("inputs", args[1] if len(args) > 1 else None)
        if (
            logps is None
            or not self._passes_of_steps
            or not isinstance(inputs, Mapping)
            or not self._is_training()
        ):
            return
        self._pass = _OpenPass(self.trainer, inputs, logps.detach(), result)
        listening = self._listening(self._pass.note_gradient)
        if type(listening) is not FunctionType:
            raise Lost(NOT_MADE)
        logps.register_hook(listening)

    def _listening(
        self, note_gradient: Callable[[torch.Tensor], None]
    ) -> Callable[[torch.Tensor], None]:
        """The function that autograd gives a gradient, which it hands to a note; it changes none."""
        lose, seconds = self._abandon, self._seconds

        def before_accumulation(gradient: torch.Tensor) -> None:
            if not self.over:
                run_contained(note_gradient, gradient, on_failure=lose, seconds=seconds)

        return before_accumulation

    def _note_end_of_pass(self, args: Any, kwargs: Mapping[str, Any], result: Any) -> Any:
        """Count a micro-batch that was differentiated; after the last one what `complete` says."""
        one, self._pass = self._pass, None
        if one is not None:
            self._passes_of_steps[-1].append(one)
            self._passes += 1
        return self._verdict_if_complete()

    def _verdict_if_complete(self) -> Any:
        """After the last micro-batch that is wanted what `complete` says; None before."""
        if not self.is_complete:
            return None
        if self._complete is not None:
            return self._complete()
        self.stop()
        return None


def _copy_token_lists(rows: Sequence[Sequence[Any]]) -> list[list[int]]:
    """Lists of token ids, copied: the program may change its own."""
    return [[int(token) for token in row] for row in rows]


class _OpenPass:
    """A micro-batch between its loss and its gradient."""

    def __init__(
        self, trainer: Any, inputs: Mapping[str, Any], logps: torch.Tensor, loss: Any
    ) -> None:
        mask = inputs["completion_mask"]
        if inputs.get("tool_mask") is not None:
            mask = mask * inputs["tool_mask"]
        old = inputs.get("old_per_token_logps", inputs.get("old_logps"))
        self.noted = LossPass(
            completion_ids=ids_of_tensor(inputs["completion_ids"]),
            in_loss=ids_of_tensor(mask).astype(np.bool_),
            advantages=as_floats(inputs["advantages"]),
            logps=as_floats(logps),
            old_logps=_floats_or_none(old),
            reference_logps=_floats_or_none(inputs.get("ref_per_token_logps")),
            sampler_logps=_floats_or_none(inputs.get("sampling_per_token_logps")),
            sampler_ratio=_floats_or_none(inputs.get("importance_sampling_ratio")),
            items=_number_or_none(inputs.get("num_items_in_batch")),
            loss=_number_or_none(loss),
            optimizer_step=int(trainer.state.global_step),
            accumulated=int(getattr(trainer, "current_gradient_accumulation_steps", 0) or 1),
        )
        self.gradient: NDArray[Any] | None = None

    def note_gradient(self, gradient: torch.Tensor) -> None:
        """Keep the gradient by the log-probabilities."""
        self.gradient = as_floats(gradient)


def _with_passes(step: RolloutStep, passes: Sequence[_OpenPass]) -> RolloutStep:
    """A generation with its micro-batches."""
    return replace(
        step, passes=tuple(replace(one.noted, logp_gradient=one.gradient) for one in passes)
    )


def step_of_output(
    trainer: Any,
    output: Mapping[str, Any],
    rows: Any,
    sampled: list[list[list[int]]],
    calls: list[RewardCall],
    rewards: NDArray[Any] | None,
    sampler_stops: tuple[int, ...] | None,
    turns: Sequence[SampledTurn] = (),
) -> RolloutStep:
    """The step of what `_generate_and_score_completions` returned, and of what was noted on the way."""
    prompt_ids = ids_of_tensor(output["prompt_ids"])
    prompt_mask = ids_of_tensor(output["prompt_mask"]).astype(np.bool_)
    completion_ids = ids_of_tensor(output["completion_ids"])
    in_loss = ids_of_tensor(output["completion_mask"]).astype(np.bool_)
    count = len(completion_ids)
    sampled_ids = _ids_of_only_call(sampled, count)
    placed = None
    if output.get("tool_mask") is not None:
        in_loss = in_loss & ids_of_tensor(output["tool_mask"]).astype(np.bool_)
        prompts = [ids[there].tolist() for ids, there in zip(prompt_ids, prompt_mask, strict=True)]
        placed = place_turns(turns, prompts, completion_ids)
        # The trainer's own mask is what is judged: it can't say what tools wrote.
        sampled_ids = placed.sampled_ids if placed else None
    rows = list(rows) if isinstance(rows, Sequence) and len(rows) == count else []
    return RolloutStep(
        settings=settings_of_trl_trainer(trainer, sampler_stops),
        prompt_ids=prompt_ids,
        prompt_mask=prompt_mask,
        completion_ids=completion_ids,
        in_loss=in_loss,
        advantages=as_floats(output["advantages"]),
        rewards=rewards,
        reward_names=tuple(map(str, getattr(trainer, "reward_func_names", None) or ())),
        first_row=int(trainer.accelerator.process_index) * count,
        prompts=tuple(to_json(row.get("prompt")) for row in rows),
        template_prompt_ids=template_prompt_ids(trainer, rows),
        columns=plain_columns(columns_of_rows(rows), count),
        sampled_ids=sampled_ids,
        sampled_places=placed.places if placed else None,
        from_tools=placed.between if placed else None,
        reward_calls=tuple(calls),
        optimizer_step=int(trainer.state.global_step),
        rank=int(trainer.accelerator.process_index),
    )


def _ids_of_only_call(
    sampled: Sequence[Sequence[Sequence[int]]], count: int
) -> tuple[tuple[int, ...], ...] | None:
    """What the only call of `generate` sampled, for so many completions; None where there were other calls.

    Several calls are several turns, or parts of the batch: which token is from which is not known by them alone.
    """
    if len(sampled) != 1 or len(sampled[0]) != count:
        return None
    return tuple(tuple(row) for row in sampled[0])


def _with_penalty_of_rloo(
    trainer: Any, step: RolloutStep, logps: Sequence[NDArray[Any]]
) -> RolloutStep:
    """The step with RLOO's log-ratios of policy and reference, and with what they take from the rewards: beta x their
    sum."""
    beta = float(_setting(trainer, "beta", 0.0))
    if step.settings.loss_type != "rloo" or not beta or len(logps) != 2:
        return step
    policy, reference = logps
    if policy.shape != step.in_loss.shape or reference.shape != step.in_loss.shape:
        return step
    ratios = policy - reference
    step = replace(step, reference_log_ratios=ratios)
    # Of several processes each knows its own penalty alone (`settings_of_trl_trainer` says so).
    if step.settings.processes > 1:
        return step
    divergence = (ratios * step.in_loss).sum(axis=1)
    return replace(step, reward_penalty=(beta * divergence).astype(np.float32))


def settings_of_trl_trainer(
    trainer: Any, sampler_stops: tuple[int, ...] | None = None
) -> RolloutSettings:
    """The settings of a trainer of TRL; `sampler_stops` as `generate` had them, where it was called."""
    read = partial(_setting, trainer)
    tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
    if sampler_stops is None:
        generation = getattr(trainer, "generation_config", None)
        sampler_stops = as_ids(getattr(generation, "eos_token_id", None))
    settings = RolloutSettings(
        loss_type=str(read("loss_type", "grpo")),
        num_generations=int(read("num_generations", 1)),
        scale_rewards=_name_of_scale(read("scale_rewards", "group")),
        baseline="mean",
        reward_weights=tuple(float(one) for one in read("reward_weights", None) or ()),
        beta=float(read("beta", 0.0)),
        is_kl_times_ratio=bool(read("use_bias_correction_kl", False)),
        epsilon_low=float(read("epsilon_low", read("epsilon", 0.2))),
        epsilon_high=float(read("epsilon_high", None) or read("epsilon", 0.2)),
        delta=read("delta", None),
        importance_sampling_level=str(read("importance_sampling_level", "token")),
        max_completion_length=int(read("max_completion_length", 0) or 0),
        mask_truncated_completions=bool(read("mask_truncated_completions", False)),
        steps_per_generation=int(read("steps_per_generation", 1) or 1),
        processes=int(trainer.accelerator.num_processes),
        trainer_stops=as_ids(read("eos_token_ids", read("eos_token_id", tokenizer.eos_token_id))),
        sampler_stops=sampler_stops,
        pad=tokenizer.pad_token_id,
        precision=precision_of(trainer),
        unknown_to_loss=tuple(_settings_unknown_to_loss(trainer)),
        unknown_to_advantages=tuple(_settings_in_force(trainer, ADVANTAGE_SWITCHES)),
    )
    is_rloo = any(base.__name__ == "RLOOTrainer" for base in type(trainer).__mro__)
    return _as_rloo_reads_them(trainer, settings) if is_rloo else settings


def _as_rloo_reads_them(trainer: Any, settings: RolloutSettings) -> RolloutSettings:
    """The settings of TRL's RLOOTrainer, which has other defaults, and a KL divergence in the rewards."""
    unknown_to_advantages = settings.unknown_to_advantages
    if settings.beta and settings.processes > 1:
        unknown_to_advantages += ("the KL divergence of other processes",)
    return replace(
        settings,
        loss_type="rloo",
        # RLOO has the setting normalize_advantages in its place.
        scale_rewards="none",
        baseline="leave-one-out",
        # The loss has no term of it: see `_with_penalty_of_rloo`.
        beta=0.0,
        importance_sampling_level=str(_setting(trainer, "importance_sampling_level", "sequence")),
        unknown_to_advantages=unknown_to_advantages,
    )


def _settings_unknown_to_loss(trainer: Any) -> Iterator[str]:
    """The settings that change the loss otherwise than `RolloutSettings` says."""
    yield from _settings_in_force(trainer, LOSS_SWITCHES)
    if getattr(trainer, "aux_loss_enabled", False):
        yield "router_aux_loss_coef"


def template_prompt_ids(trainer: Any, rows: list[Any]) -> tuple[tuple[int, ...], ...] | None:
    """What the chat template makes of each prompt, with the generation prompt; None where that is not known.

    It is not where an environment writes a part of the prompt, or where it holds images.
    """
    prompts = [row.get("prompt") for row in rows]
    tokenizer = trainer.processing_class
    if (
        not prompts
        or not all(_is_chat_of_texts(prompt) for prompt in prompts)
        or getattr(trainer, "environment_factories", None) is not None
        or not getattr(tokenizer, "chat_template", None)
    ):
        return None
    ids_by_prompt: dict[str, tuple[int, ...]] = {}
    keys = [json.dumps(to_json(prompt), sort_keys=True) for prompt in prompts]
    for key, prompt in zip(keys, prompts, strict=True):
        # Once for each prompt: it stands here once for each of its completions.
        if key not in ids_by_prompt:
            ids_by_prompt[key] = _render_prompt(trainer, prompt)
    return tuple(ids_by_prompt[key] for key in keys)


def _render_prompt(trainer: Any, prompt: Any) -> tuple[int, ...]:
    """The ids of one prompt by the chat template, as TRL renders it."""
    ids = trainer.processing_class.apply_chat_template(
        conversation=prompt,
        tools=getattr(trainer, "tools", None) or None,
        chat_template=getattr(trainer, "chat_template", None),
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        **(getattr(trainer, "chat_template_kwargs", None) or {}),
    )["input_ids"]
    return tuple(int(one) for one in ids)


def _is_chat_of_texts(prompt: Any) -> bool:
    """Is a prompt a list of messages whose contents are texts?"""
    return (
        isinstance(prompt, list)
        and bool(prompt)
        and all(isinstance(one, Mapping) and isinstance(one.get("content"), str) for one in prompt)
    )


def _setting(trainer: Any, name: str, default: Any) -> Any:
    """A setting as the trainer holds it, else as its arguments do."""
    value = getattr(trainer, name, None)
    if value is None:
        value = getattr(trainer.args, name, None)
    if isinstance(value, torch.Tensor):
        value = value.tolist()
    return default if value is None else value


def _settings_in_force(trainer: Any, switches: Mapping[str, Any]) -> Sequence[str]:
    """The settings of a table that are not as it has them."""
    return [
        f"{name}={_setting(trainer, name, neutral)!r}"
        for name, neutral in switches.items()
        if _setting(trainer, name, neutral) != neutral
    ]


def _name_of_scale(value: Any) -> str:
    """What advantages are divided by; earlier releases of TRL say true or false."""
    names = {"True": "group", "False": "none"}
    return names.get(str(value), str(value))


def precision_of(trainer: Any) -> str:
    """The type in which forward passes are computed."""
    if getattr(trainer.args, "bf16", False):
        return "bfloat16"
    if getattr(trainer.args, "fp16", False):
        return "float16"
    parameter = next(iter(trainer.model.parameters()), None)
    return str(getattr(parameter, "dtype", "float32")).removeprefix("torch.")


def columns_of_rows(rows: Sequence[Any]) -> dict[str, list[Any]]:
    """The columns of rows but the prompt, as lists."""
    if not rows:
        return {}
    return {str(key): [row.get(key) for row in rows] for key in rows[0] if key != "prompt"}


def plain_columns(columns: Mapping[str, Any], count: int) -> dict[str, list[Any]]:
    """The columns that hold a short plain value for each of `count` completions; what the trainer adds is none."""
    return {
        name: list(values)
        for name, values in columns.items()
        if isinstance(values, list)
        and len(values) == count
        and name not in ("prompts", "completions", "completion_ids")
        and all(_is_plain(value) for value in values)
    }


def _is_plain(value: Any) -> bool:
    """Is it a short text, a number, a truth value or None? Asked of its type, as a value may answer anything."""
    if type(value) is str:
        return len(value) <= MAX_TEXT
    return value is None or type(value) in (int, float, bool)


def _up_to_first_stop(row: list[int], stops: tuple[int, ...]) -> list[int]:
    """A completion without what comes after its first stop, which is padding."""
    for place, token in enumerate(row):
        if token in stops:
            return row[: place + 1]
    return row


def as_ids(value: Any) -> tuple[int, ...]:
    """One id, several or none, as a tuple."""
    if isinstance(value, torch.Tensor):
        value = value.tolist()
    if value is None:
        return ()
    return (
        tuple(int(one) for one in value) if isinstance(value, list | tuple | set) else (int(value),)
    )


def ids_of_tensor(tensor: Any) -> NDArray[np.int64]:
    """Whole numbers of a tensor."""
    if not isinstance(tensor, torch.Tensor):
        raise Lost(f"a rollout holds {type(tensor).__name__} where ids are expected")
    return tensor.detach().to("cpu", torch.int64).numpy().copy()


def as_floats(tensor: Any) -> NDArray[np.float32]:
    """Numbers of a tensor."""
    if not isinstance(tensor, torch.Tensor):
        raise Lost(f"a rollout holds {type(tensor).__name__} where numbers are expected")
    return tensor.detach().to("cpu", torch.float32).numpy().copy()


def _floats_or_none(tensor: Any) -> NDArray[np.float32] | None:
    """Numbers of a tensor, where there is one."""
    return None if tensor is None else as_floats(tensor)


def _number_or_none(value: Any) -> float | None:
    """A number, where it is one."""
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return float(value.detach())
    return float(value) if type(value) in (int, float) else None
