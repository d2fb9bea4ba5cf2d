"""Recipe: what the settings of a run mean for `truetune train`, and the arguments of its trainer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from truetune.errors import SpecError, TokenizerError
from truetune.spec.files import spec_of
from truetune.spec.run import RunSpec
from truetune.spec.training import Method, Training
from truetune.training.contradictions import refuse
from truetune.training.defaults import (
    LENGTH,
    Choice,
    Filling,
    fill_batches,
    fill_memory,
    fill_rate,
    fill_records,
    fill_warmup,
    fill_weights,
    steps_of,
)
from truetune.training.shape import shape_of

__all__ = ["Choice", "Recipe", "arguments_of", "recipe"]

SEED = 42
PASSED = (
    "output_dir", "learning_rate", "lr_scheduler_type", "warmup_steps", "num_train_epochs", "max_steps",
    "per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps", "optim",
    "weight_decay", "max_grad_norm", "bf16", "fp16", "eval_strategy", "eval_steps",
    "save_strategy", "save_steps", "save_total_limit", "logging_steps", "logging_nan_inf_filter",
    "eval_accumulation_steps", "load_best_model_at_end", "metric_for_best_model", "greater_is_better",
)  # fmt: skip
"""Fields of Training that are arguments of every trainer, by the same name"""
PREFERENCES: Mapping[Method, tuple[str, ...]] = {
    "dpo": ("beta", "loss_type", "precompute_ref_log_probs", "disable_dropout"),
    "orpo": ("beta", "disable_dropout"),
    "kto": ("beta", "loss_type", "precompute_ref_log_probs", "disable_dropout", "desirable_weight",
            "undesirable_weight"),
}  # fmt: skip
"""The same for the trainer of one method"""
CHECKPOINTING = "activation_checkpointing"
"""What transformers calls gradient_checkpointing since 5.23"""
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)e[-+]?\d+", re.I)
"""`1e-8`, which YAML takes for text"""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A run with every setting filled that a trainer needs."""

    spec: RunSpec
    """`training`, `max_length` and `encode.packing` are filled; `trainer` holds what has no field."""
    choices: tuple[Choice, ...]
    gpu: bool
    rows: int | None
    """Rows that the trainer takes in one epoch (packs, where rows are packed); None where unknown"""

    @property
    def training(self) -> Training:
        """Filled"""
        return self.spec.training

    @property
    def method(self) -> Method:
        """One of sft, dpo, orpo, kto"""
        return self.spec.training.method

    @property
    def packing(self) -> bool:
        """Several examples stand in one row."""
        return self.spec.encode.packing == "best-fit"

    @property
    def max_length(self) -> int:
        """Tokens of the longest row"""
        assert self.spec.max_length is not None
        return self.spec.max_length

    @property
    def seed(self) -> int:
        """Of everything that is drawn"""
        return int(self.spec.trainer.get("seed", SEED))

    @property
    def effective(self) -> int:
        """Rows in one step of the optimizer, over all devices"""
        asked = self.training
        return (
            (asked.per_device_train_batch_size or 1)
            * (asked.gradient_accumulation_steps or 1)
            * asked.devices
        )

    @property
    def steps(self) -> int | None:
        """Of the whole run; None where the rows are not known"""
        return steps_of(self.training, self.rows)


def recipe(spec: RunSpec, *, rows: int | None, gpu: bool, bf16: bool) -> Recipe:
    """What the settings mean on this machine; `bf16`: it computes bfloat16 fast.

    Raises UsageError where settings contradict each other, SpecError for a value that is not understood.
    """
    asked, trainer = _absorbed(spec)
    refuse(spec, asked, trainer, gpu=gpu, bf16=bf16)
    fill = Filling(asked)
    size, longest = _model(spec)
    packing, length = _rows(spec, fill, longest)
    fill_weights(fill, gpu=gpu, bf16=bf16)
    fill_rate(fill)
    fill_batches(fill, rows)
    fill_warmup(fill, rows)
    fill_memory(fill, gpu=gpu, size=size)
    fill_records(fill, rows, evaluates=bool(spec.eval_data) or asked.val_size != 0)
    filled = spec.model_copy(
        update={
            "training": fill.training,
            "trainer": trainer,
            "max_length": length,
            "encode": spec.encode.model_copy(update={"packing": "best-fit" if packing else "none"}),
        }
    )
    return Recipe(filled, tuple(fill.choices), gpu, rows)


def arguments_of(recipe: Recipe, *, evaluates: bool = True) -> dict[str, Any]:
    """Keyword arguments for the class of the method: TrainingArguments (sft), DPOConfig, ORPOConfig or KTOConfig.

    `evaluates`: there are rows to evaluate on.
    """
    training = recipe.training
    names = (*PASSED, *PREFERENCES.get(training.method, ()))
    made = {name: value for name in names if (value := getattr(training, name)) is not None}
    made |= {
        "seed": SEED,
        "use_cpu": not recipe.gpu,
        "remove_unused_columns": False,
        CHECKPOINTING: training.gradient_checkpointing,
        f"{CHECKPOINTING}_kwargs": {"use_reentrant": training.use_reentrant},
        "logging_first_step": True,
    }
    if training.method == "sft":
        made["prediction_loss_only"] = True
    else:
        made["max_length"] = recipe.max_length
    if training.method == "kto":
        made["train_sampling_strategy"] = "sequential"
    if not evaluates:
        made = {name: value for name, value in made.items() if name != "eval_steps"} | {
            "eval_strategy": "no"
        }
    return made | {name: _number(value) for name, value in recipe.spec.trainer.items()}


def _absorbed(spec: RunSpec) -> tuple[Training, dict[str, Any]]:
    """The training's settings under those of `trainer`, which win; and what of these has no field."""
    given = dict(spec.trainer)
    if CHECKPOINTING in given:
        given["gradient_checkpointing"] = given.pop(CHECKPOINTING)
    fields = {*PASSED, *PREFERENCES.get(spec.training.method, ()), "gradient_checkpointing"}
    over = {name: given.pop(name) for name in list(given) if name in fields}
    settings = {**spec.training.model_dump(exclude_unset=True), **over}
    return spec_of({"training": settings}, "trainer").training, given


def _model(spec: RunSpec) -> tuple[int | None, int | None]:
    """Parameters, and the positions that the model knows, where config.json is at hand."""
    try:
        shape = shape_of(spec)
    except (SpecError, TokenizerError):
        return None, None
    return shape.architecture.parameters, shape.positions


def _rows(spec: RunSpec, fill: Filling, longest: int | None) -> tuple[bool, int]:
    """Are examples packed, and how long is a row at most?"""
    length = spec.max_length
    if length is None:
        length = min(LENGTH, longest or LENGTH)
        why = (
            "as long as the model's positions"
            if length < LENGTH
            else "longer examples go by encode.overflow"
        )
        fill.say("max_length", length, why)
    asked = fill.training.packing
    if asked is None and "packing" in spec.encode.model_fields_set:
        asked = spec.encode.packing == "best-fit"
    packing = fill.training.method == "sft" if asked is None else asked
    if asked is None and packing:
        fill.say(
            "encode.packing",
            "best-fit",
            "short examples share a row, and attention keeps them apart",
        )
    fill.put("packing", packing)
    return packing, length


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, str) and NUMBER.fullmatch(value) else value
