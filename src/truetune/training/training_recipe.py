"""The recipe of a run: its settings with everything filled, and the arguments of its trainer.

`make_recipe` puts the user's settings together, refuses what contradicts itself, and fills the rest. It reads no data
and loads no model, so that `plan`, `init` and tests can ask it for any machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from truetune.errors import SpecError, TokenizerError
from truetune.settings.read_truetune_settings import validate_settings
from truetune.settings.run_spec import RunSpec, Watch
from truetune.settings.training_settings import Method, Training
from truetune.training.default_settings import (
    DEFAULT_MAX_LENGTH,
    Choice,
    SettingsBuilder,
    count_optimizer_steps,
    fill_gradient_checkpointing,
    fill_logging_and_saving,
    fill_lora_and_number_formats,
    fill_rate_schedule_and_optimizer,
    fill_rows_per_step,
    fill_sampled_answers,
    fill_warmup,
)
from truetune.training.read_model_shape import read_model_shape
from truetune.training.reward_names import parser_of_rewards
from truetune.training.setting_conflicts import refuse_conflicts

__all__ = ["Choice", "Recipe", "make_recipe", "trainer_arguments_of_recipe"]

# transformers' default, so that a run without a seed is the same as one of its Trainer.
DEFAULT_SEED = 42
SHARED_ARGUMENTS = (
    "output_dir", "learning_rate", "lr_scheduler_type", "warmup_steps", "num_train_epochs", "max_steps",
    "per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps", "optim",
    "weight_decay", "max_grad_norm", "bf16", "fp16", "eval_strategy", "eval_steps",
    "save_strategy", "save_steps", "save_total_limit", "logging_steps", "logging_nan_inf_filter",
    "eval_accumulation_steps", "load_best_model_at_end", "metric_for_best_model", "greater_is_better",
)  # fmt: skip
"""Fields of Training that are arguments of every trainer, by the same name"""
METHOD_ARGUMENTS: Mapping[Method, tuple[str, ...]] = {
    "dpo": ("beta", "loss_type", "precompute_ref_log_probs", "disable_dropout"),
    "orpo": ("beta", "disable_dropout"),
    "kto": ("beta", "loss_type", "precompute_ref_log_probs", "disable_dropout", "desirable_weight",
            "undesirable_weight"),
    "grpo": ("beta", "loss_type", "disable_dropout", "reward_weights", "num_generations", "max_completion_length"),
}  # fmt: skip
"""The same for the trainer of one method"""
CHECKPOINTING = "activation_checkpointing"
"""What transformers calls gradient_checkpointing since 5.23"""
# YAML 1.1 asks for a dot in a float: `1e-8` without one is text, as PyYAML reads it.
SCIENTIFIC_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)e[-+]?\d+", re.I)
"""`1e-8`, which YAML takes for text"""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The settings of a run, with everything filled that a trainer needs."""

    spec: RunSpec
    """`training`, `max_length` and `encode.packing` are filled; `trainer` holds what has no field."""
    choices: tuple[Choice, ...]
    gpu: bool
    rows: int | None
    """Rows that the trainer takes in one epoch (packs, where rows are packed; prompts, where answers are sampled); None
    where unknown"""

    @property
    def training(self) -> Training:
        """The training settings, filled."""
        return self.spec.training

    @property
    def method(self) -> Method:
        """The training method: sft, dpo, orpo, kto or grpo."""
        return self.spec.training.method

    @property
    def packing(self) -> bool:
        """Are several examples packed into one row?"""
        return self.spec.encode.packing == "best-fit"

    @property
    def max_length(self) -> int:
        """The tokens of the longest row."""
        # make_recipe always fills it; the field is optional in what users write.
        assert self.spec.max_length is not None
        return self.spec.max_length

    @property
    def seed(self) -> int:
        """The seed of everything that is drawn."""
        return int(self.spec.trainer.get("seed", DEFAULT_SEED))

    @property
    def effective_batch(self) -> int:
        """Rows (sampled answers of a training by rewards) in one step of the optimizer, over all devices"""
        settings = self.training
        return (
            (settings.per_device_train_batch_size or 1)
            * (settings.gradient_accumulation_steps or 1)
            * settings.devices
        )

    @property
    def steps(self) -> int | None:
        """The optimizer steps of the whole run; None where the number of rows is not known."""
        return count_optimizer_steps(self.training, self.rows)


def make_recipe(spec: RunSpec, *, rows: int | None, gpu: bool, bf16: bool) -> Recipe:
    """The recipe of a run: its settings, checked for conflicts, and filled for this machine.

    Args:
        spec: what the user said.
        rows: that the trainer takes in one epoch; None where they are not counted yet.
        gpu: the run is on a GPU.
        bf16: the machine computes bfloat16 fast.

    Raises:
        UsageError: settings contradict each other.
        SpecError: a value that is not understood.
    """
    training, trainer = _apply_trainer_arguments_and_keep_rest(spec)
    # Before the filling, so that only what the user wrote can be in conflict.
    refuse_conflicts(spec, training, trainer, gpu=gpu, bf16=bf16)
    fill = SettingsBuilder(training)
    size, longest = _parameter_and_position_counts(spec)
    packing, length = _packing_and_max_length(spec, fill, longest)
    fill_lora_and_number_formats(fill, gpu=gpu, bf16=bf16)
    fill_rate_schedule_and_optimizer(fill)
    fill_sampled_answers(fill)
    # The order of the next four matters: the number of steps follows from the batches, and warmup
    # and records from the number of steps.
    fill_rows_per_step(fill, rows)
    fill_warmup(fill, rows)
    fill_gradient_checkpointing(fill, gpu=gpu, parameters=size)
    if training.method == "grpo":
        fill("eval_strategy", "no", "held-out prompts are answered instead (watch)")
    fill_logging_and_saving(fill, rows, evaluates=bool(spec.eval_data) or training.val_size != 0)
    filled = spec.model_copy(
        update={
            "training": fill.training,
            "trainer": trainer,
            "max_length": length,
            "encode": spec.encode.model_copy(update={"packing": "best-fit" if packing else "none"}),
            "watch": _watch_what_is_rewarded(spec, fill),
        }
    )
    return Recipe(filled, tuple(fill.choices), gpu, rows)


def trainer_arguments_of_recipe(recipe: Recipe, *, evaluates: bool = True) -> dict[str, Any]:
    """Keyword arguments for the class of the method: TrainingArguments (sft), DPOConfig, ORPOConfig, KTOConfig or
    GRPOConfig.

    `evaluates`: there are rows to evaluate on.
    """
    training = recipe.training
    names = (*SHARED_ARGUMENTS, *METHOD_ARGUMENTS.get(training.method, ()))
    values = {name: getattr(training, name) for name in names}
    arguments = {name: value for name, value in values.items() if value is not None}
    arguments |= {
        "seed": DEFAULT_SEED,
        "use_cpu": not recipe.gpu,
        # transformers would drop our columns (weights, sources), since no model has an argument of
        # that name.
        "remove_unused_columns": False,
        CHECKPOINTING: training.gradient_checkpointing,
        f"{CHECKPOINTING}_kwargs": {"use_reentrant": training.use_reentrant},
        "logging_first_step": True,
    }
    if training.method == "sft":
        arguments["prediction_loss_only"] = True
    elif training.method == "grpo":
        # Prompts that leave no room for an answer are left out beforehand (`rollout_rows`).
        arguments |= _arguments_of_sampling(training)
    else:
        arguments["max_length"] = recipe.max_length
    if training.method == "kto":
        # preference_rows puts the rows in an order in which no neighbour shares a prompt; shuffling
        # would undo it.
        arguments["train_sampling_strategy"] = "sequential"
    if not evaluates:
        arguments = {name: value for name, value in arguments.items() if name != "eval_steps"} | {
            "eval_strategy": "no"
        }
    # The user's own arguments last: they win over what is chosen here.
    return arguments | {
        name: _text_in_scientific_notation_as_float(value)
        for name, value in recipe.spec.trainer.items()
    }


def _arguments_of_sampling(training: Training) -> dict[str, Any]:
    """Arguments of GRPOConfig beside those that are fields of Training."""
    weights = training.reward_weights
    return {} if weights is None else {"reward_weights": list(weights)}


def _apply_trainer_arguments_and_keep_rest(spec: RunSpec) -> tuple[Training, dict[str, Any]]:
    """The training's settings under those of `trainer`, which win; and what of these has no field."""
    trainer = dict(spec.trainer)
    if CHECKPOINTING in trainer:
        trainer["gradient_checkpointing"] = trainer.pop(CHECKPOINTING)
    fields = {
        *SHARED_ARGUMENTS,
        *METHOD_ARGUMENTS.get(spec.training.method, ()),
        "gradient_checkpointing",
    }
    over = {name: trainer.pop(name) for name in list(trainer) if name in fields}
    settings = {**spec.training.model_dump(exclude_unset=True), **over}
    return validate_settings({"training": settings}, "trainer").training, trainer


def _watch_what_is_rewarded(spec: RunSpec, fill: SettingsBuilder) -> Watch:
    """What is watched; answers are read by the parser of a built-in reward, where the user names no other."""
    parser = parser_of_rewards(spec.training.rewards)
    if parser is None or spec.watch.parser is not None:
        return spec.watch
    fill.record_choice("watch.parser", parser, "held-out answers are read as rewarded ones are")
    return spec.watch.model_copy(update={"parser": parser})


def _parameter_and_position_counts(spec: RunSpec) -> tuple[int | None, int | None]:
    """Parameters, and the positions that the model knows, where config.json is available."""
    try:
        shape = read_model_shape(spec)
    except (SpecError, TokenizerError):
        return None, None
    return shape.architecture.parameters, shape.positions


def _packing_and_max_length(
    spec: RunSpec, fill: SettingsBuilder, longest: int | None
) -> tuple[bool, int]:
    """(is packed, tokens of a row at most) of the run's rows."""
    length = spec.max_length
    if length is None:
        # Positions beyond those that the model was trained with give noise, or an index error.
        length = min(DEFAULT_MAX_LENGTH, longest or DEFAULT_MAX_LENGTH)
        why = (
            "as long as the model's positions"
            if length < DEFAULT_MAX_LENGTH
            else "longer examples go by encode.overflow"
        )
        fill.record_choice("max_length", length, why)
    wants_packing = fill.training.packing
    if wants_packing is None and "packing" in spec.encode.model_fields_set:
        wants_packing = spec.encode.packing == "best-fit"
    # A preference compares whole answers, which may not share a row.
    packing = fill.training.method == "sft" if wants_packing is None else wants_packing
    if wants_packing is None and packing:
        fill.record_choice(
            "encode.packing",
            "best-fit",
            "short examples share a row, and attention keeps them apart",
        )
    fill.put_silently("packing", packing)
    return packing, length


def _text_in_scientific_notation_as_float(value: Any) -> Any:
    """A text that is a number in scientific notation, as a float; all else as it is."""
    return float(value) if isinstance(value, str) and SCIENTIFIC_NUMBER.fullmatch(value) else value
