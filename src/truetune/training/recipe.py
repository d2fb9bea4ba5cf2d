"""Recipe: what the settings of a run mean for `truetune train`. docs/recipes.md has the sources of the defaults."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from truetune.errors import SpecError
from truetune.memory.architecture import read
from truetune.spec.files import spec_of
from truetune.spec.run import RunSpec
from truetune.spec.training import Lora, Method, Training
from truetune.training.contradictions import refuse

SEED = 42
LENGTH = 2048
"""Tokens of a row where no max_length is set, and the model takes as many"""
EFFECTIVE = 16
"""Rows in one step of the optimizer"""
STEPS = 50
"""Where there would be fewer steps, each takes fewer rows"""
LARGE = 1_000_000_000
"""Parameters from which a GPU keeps no activations (gradient checkpointing)"""
RANK = 16


class Defaults(NamedTuple):
    """What one method starts from."""

    full: float
    """Learning rate where all weights are trained"""
    adapter: float
    """Learning rate of an adapter"""
    epochs: float
    warmup: float
    """Share of the steps"""
    batch: int
    """Rows (of preferences: pairs) in one forward pass"""
    smallest: int = 1
    """Rows in one forward pass at least"""


DEFAULTS: Mapping[Method, Defaults] = {
    "sft": Defaults(2e-5, 2e-4, 3, 0.03, 4),
    "dpo": Defaults(1e-6, 1e-5, 1, 0.1, 2),
    "orpo": Defaults(8e-6, 8e-5, 3, 0.1, 2),
    "kto": Defaults(1e-6, 5e-6, 1, 0.1, 4, smallest=4),
}
PASSED = (
    "output_dir", "learning_rate", "lr_scheduler_type", "warmup_steps", "num_train_epochs", "max_steps",
    "per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps", "optim",
    "weight_decay", "max_grad_norm", "bf16", "fp16", "use_liger_kernel", "eval_strategy", "eval_steps",
    "save_strategy", "save_steps", "save_total_limit", "logging_steps", "logging_nan_inf_filter",
    "eval_accumulation_steps", "load_best_model_at_end", "metric_for_best_model", "greater_is_better",
)  # fmt: skip
"""Fields of Training that are arguments of every trainer, by the same name"""
PREFERENCES: Mapping[Method, tuple[str, ...]] = {
    "sft": (),
    "dpo": ("beta", "loss_type", "precompute_ref_log_probs", "disable_dropout"),
    "orpo": ("beta", "disable_dropout"),
    "kto": ("beta", "loss_type", "precompute_ref_log_probs", "disable_dropout", "desirable_weight",
            "undesirable_weight"),
}  # fmt: skip
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)e[-+]?\d+", re.I)
"""`1e-8`, which YAML takes for text"""


@dataclass(frozen=True, slots=True)
class Choice:
    """Something that was chosen for the user."""

    setting: str
    value: Any
    why: str

    def __str__(self) -> str:
        return f"{self.setting}: {self.value} ({self.why})"


@dataclass(frozen=True, slots=True)
class Recipe:
    """A run with every setting filled that a trainer needs."""

    spec: RunSpec
    """`training`, `max_length` and `encode.packing` are filled; `trainer` holds what has no field."""
    choices: tuple[Choice, ...]
    gpu: bool
    rows: int | None
    """Rows that the trainer takes in one epoch (packed ones, where rows are packed); None where unknown"""

    @property
    def training(self) -> Training:
        return self.spec.training

    @property
    def method(self) -> Method:
        return self.spec.training.method

    @property
    def packing(self) -> bool:
        return self.spec.encode.packing == "best-fit"

    @property
    def max_length(self) -> int:
        assert self.spec.max_length is not None
        return self.spec.max_length

    @property
    def seed(self) -> int:
        return int(self.spec.trainer.get("seed", SEED))

    @property
    def effective(self) -> int:
        """Rows in one step of the optimizer, over all devices"""
        asked = self.training
        return (asked.per_device_train_batch_size or 1) * (asked.gradient_accumulation_steps or 1) * asked.devices

    @property
    def steps(self) -> int | None:
        """Steps of the whole run"""
        return steps_of(self.training, self.rows)


def recipe(spec: RunSpec, *, rows: int | None, gpu: bool, bf16: bool) -> Recipe:
    """What the settings mean on this machine; `bf16`: it computes bfloat16 natively.

    Raises UsageError where settings contradict each other, SpecError for a value that is not understood.
    """
    asked, trainer = _absorbed(spec)
    refuse(spec, asked, trainer, gpu=gpu, bf16=bf16)
    fill = _Filling(asked)
    size, longest = _model(spec)
    packing, length = _rows_of(spec, fill, longest)
    _weights(fill, gpu=gpu, bf16=bf16)
    _rate(fill)
    _batches(fill, rows)
    _memory(fill, gpu=gpu, size=size)
    _records(fill, rows, evaluates=bool(spec.eval_data) or asked.val_size != 0)
    if asked.method != "sft":
        fill("beta", 0.1, "the value of the method's paper and of TRL")
    filled = spec.model_copy(update={
        "training": fill.training,
        "trainer": trainer,
        "max_length": length,
        "encode": spec.encode.model_copy(update={"packing": "best-fit" if packing else "none"}),
    })  # fmt: skip
    return Recipe(filled, tuple(fill.choices), gpu, rows)


def arguments_of(recipe: Recipe, *, evaluates: bool = True) -> dict[str, Any]:
    """Keyword arguments for the class of the method: TrainingArguments (sft), DPOConfig, ORPOConfig or KTOConfig.

    `evaluates`: there are rows to evaluate on.
    """
    training = recipe.training
    names = (*PASSED, *PREFERENCES[training.method])
    made = {name: value for name in names if (value := getattr(training, name)) is not None}
    made |= {
        "seed": SEED,
        "use_cpu": not recipe.gpu,
        "remove_unused_columns": False,
        "activation_checkpointing": training.gradient_checkpointing,
        "activation_checkpointing_kwargs": {"use_reentrant": training.use_reentrant},
        "logging_first_step": True,
    }
    if training.method == "sft":
        made["prediction_loss_only"] = True
    else:
        made["max_length"] = recipe.max_length
    if training.method == "kto":
        made["train_sampling_strategy"] = "sequential"
    if not evaluates:
        made = {name: value for name, value in made.items() if name != "eval_steps"} | {"eval_strategy": "no"}
    return made | {name: _number(value) for name, value in recipe.spec.trainer.items()}


def steps_of(training: Training, rows: int | None) -> int | None:
    """Steps of the whole run, as transformers counts them; None where the rows are not known."""
    if training.max_steps is not None and training.max_steps > 0:
        return training.max_steps
    if not rows:
        return None
    batches = math.ceil(rows / ((training.per_device_train_batch_size or 1) * training.devices))
    each = math.ceil(batches / (training.gradient_accumulation_steps or 1))
    return math.ceil(each * (training.num_train_epochs or 1))


class _Filling:
    """Training in the making: a field that is not set is filled, and said."""

    def __init__(self, training: Training) -> None:
        self.training = training
        self.choices: list[Choice] = []

    def __call__(self, name: str, value: Any, why: str) -> None:
        if getattr(self.training, name) is None:
            self.put(name, value)
            self.choices.append(Choice(f"training.{name}", value, why))

    def put(self, name: str, value: Any) -> None:
        self.training = self.training.model_copy(update={name: value})


def _absorbed(spec: RunSpec) -> tuple[Training, dict[str, Any]]:
    """The training's settings under those of `trainer`, which win; and what of these has no field."""
    given = dict(spec.trainer)
    if "activation_checkpointing" in given:
        given["gradient_checkpointing"] = given.pop("activation_checkpointing")
    known = {*PASSED, *PREFERENCES[spec.training.method]} if spec.training.method in PREFERENCES else set(PASSED)
    known |= {"gradient_checkpointing"}
    over = {name: given.pop(name) for name in list(given) if name in known}
    settings = {**spec.training.model_dump(exclude_unset=True), **over}
    return spec_of({"training": settings}, "trainer").training, given


def _model(spec: RunSpec) -> tuple[int | None, int | None]:
    """Parameters, and the longest text in tokens, where config.json is at hand and says so."""
    name = spec.model or spec.tokenizer
    if name is None or not Path(name, "config.json").is_file():
        return None, None
    try:
        values = json.loads(Path(name, "config.json").read_text(encoding="utf-8"))
        return read(name).parameters, _positions(values)
    except (SpecError, ValueError):
        return None, None


def _positions(values: Any) -> int | None:
    inner = values.get("text_config") or values
    known = inner.get("max_position_embeddings") or inner.get("n_positions")
    return known if isinstance(known, int) and known > 0 else None


def _rows_of(spec: RunSpec, fill: _Filling, longest: int | None) -> tuple[bool, int]:
    """Are rows packed, and how long are they at most?"""
    length = spec.max_length
    if length is None:
        length = min(LENGTH, longest or LENGTH)
        why = "no longer than the model's positions" if length < LENGTH else "longer examples go by encode.overflow"
        fill.choices.append(Choice("max_length", length, why))
    asked = fill.training.packing
    if asked is None and "packing" in spec.encode.model_fields_set:
        asked = spec.encode.packing == "best-fit"
    packing = fill.training.method == "sft" if asked is None else asked
    if asked is None and packing:
        why = "short examples share a row, and attention keeps them apart; none turns it off"
        fill.choices.append(Choice("encode.packing", "best-fit", why))
    fill.put("packing", packing)
    return packing, length


def _weights(fill: _Filling, *, gpu: bool, bf16: bool) -> None:
    """LoRA, and the numbers that weights and activations are."""
    training = fill.training
    if training.lora is not None:
        _lora(fill, training.lora)
    if training.fp16:
        fill("bf16", False, "fp16 is set")
    here = "this GPU" if gpu else "this machine"
    fill("bf16", bf16, f"{here} computes bfloat16" if bf16 else f"{here} does not compute bfloat16 natively")
    fill("fp16", False, "bfloat16 has the range of float32, float16 has not")
    if training.load_in is not None:
        narrow = "bfloat16" if fill.training.bf16 else "float16" if fill.training.fp16 else "float32"
        fill("dtype", narrow, "what is not quantized, and what quantized weights are computed in")
    elif training.lora is not None or training.adapter is not None:
        fill("dtype", "auto", "the base keeps its own type and is not trained; the adapter is float32")
    else:
        fill("dtype", "float32", "all weights are trained: bfloat16 ones round small updates away")


def _lora(fill: _Filling, lora: Lora) -> None:
    given = lora.model_fields_set
    made: dict[str, Any] = {}
    if "r" not in given:
        made["r"] = RANK
    rank = made.get("r", lora.r)
    if "lora_alpha" not in given:
        made["lora_alpha"] = 2 * math.sqrt(rank) if lora.use_rslora else 2 * rank
    if lora.target_modules is None:
        made["target_modules"] = "all-linear"
    why = {
        "r": "enough for some 10,000 examples",
        "lora_alpha": "updates are scaled by 2",
        "target_modules": "adapters on every linear layer, the MLP's above all, learn as a full fine-tune does",
    }
    fill.put("lora", lora.model_copy(update=made))
    fill.choices += [Choice(f"training.lora.{name}", value, why[name]) for name, value in made.items()]


def _rate(fill: _Filling) -> None:
    training = fill.training
    start = DEFAULTS[training.method]
    adapts = training.lora is not None or training.adapter is not None
    what = "an adapter" if adapts else "all weights"
    fill("learning_rate", start.adapter if adapts else start.full, f"{training.method} of {what}")
    fill("lr_scheduler_type", "cosine", "falls to 0 at the end")
    if training.warmup_ratio is not None:
        fill.put("warmup_steps", training.warmup_ratio)
    fill("warmup_steps", start.warmup, "a share of all steps")
    fill("optim", "adamw_torch_fused", "AdamW in one kernel")
    fill("weight_decay", 0.0, "a fine-tune is short")
    fill("max_grad_norm", 1.0, "clips the gradient of a bad batch")


def _batches(fill: _Filling, rows: int | None) -> None:
    """Rows of a step. Few rows make smaller steps, so that there are enough of them."""
    training = fill.training
    start = DEFAULTS[training.method]
    if training.max_steps is None or training.max_steps < 1:
        fill("num_train_epochs", start.epochs, f"times that {training.method} sees each row")
    wanted = EFFECTIVE
    epochs = fill.training.num_train_epochs
    while rows and epochs and wanted > start.smallest and rows * epochs / wanted < STEPS:
        wanted //= 2
    why = "16 rows a step" if wanted == EFFECTIVE else f"{wanted} rows a step: more would make under {STEPS} steps"
    most = 2 if training.packing else start.batch
    share = wanted // (training.devices * (training.gradient_accumulation_steps or 1))
    fill("per_device_train_batch_size", max(start.smallest, min(most, share), 1), why)
    batch = fill.training.per_device_train_batch_size or 1
    fill("gradient_accumulation_steps", max(1, round(wanted / (batch * training.devices))), why)
    fill("per_device_eval_batch_size", batch, "as in training")


def _memory(fill: _Filling, *, gpu: bool, size: int | None) -> None:
    large = gpu and (size is None or size >= LARGE)
    if not gpu:
        why = "costs time, and memory is not what limits a CPU"
    elif size is None:
        why = "the size of the model is not known; costs a quarter of the time"
    else:
        why = f"{size / 1e9:.2g} billion parameters; from 1 billion on"
    fill("gradient_checkpointing", large, why)
    if fill.training.use_reentrant is None:
        fill.put("use_reentrant", False)


def _records(fill: _Filling, rows: int | None, *, evaluates: bool) -> None:
    """When a run logs, evaluates and saves: in steps where their number is known, else in shares of the run."""
    if fill.training.output_dir is None:
        fill("output_dir", "trained", "where the run's record, checkpoints and weights go")
    fill.put("logging_nan_inf_filter", bool(fill.training.logging_nan_inf_filter))
    steps = steps_of(fill.training, rows)
    fill("logging_steps", max(1, round(steps / 100)) if steps else 0.01, "about 100 points")
    fill("save_strategy", "steps", "a killed run goes on from its last checkpoint")
    quarter = math.ceil(steps / 4) if steps else 0.25
    fill("save_steps", quarter, "about 4 checkpoints")
    fill("save_total_limit", 2, "the last checkpoints are kept")
    fill("eval_strategy", "steps" if evaluates else "no", "on held-out rows" if evaluates else "val_size is 0")
    if fill.training.eval_strategy == "steps":
        fill("eval_steps", fill.training.save_steps, "with each checkpoint")


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, str) and NUMBER.fullmatch(value) else value
