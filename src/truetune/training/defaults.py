"""Defaults: the settings of a run that the user left open. docs/recipes.md has their sources."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from truetune.spec.training import Lora, Method, Training

LENGTH = 2048
"""Tokens of a row where no max_length is set, and the model takes as many"""
EFFECTIVE = 16
"""Rows in one step of the optimizer"""
STEPS = 50
"""Where there would be fewer steps, each takes fewer rows"""
LARGE = 1_000_000_000
"""Parameters from which a GPU keeps few activations (gradient checkpointing)"""
RANK = 16
BETA = 0.1


class Defaults(NamedTuple):
    """What one method starts from."""

    full: float
    """Learning rate where all weights are trained"""
    adapter: float
    """Learning rate of an adapter"""
    epochs: int
    warmup: float
    """Share of the steps"""
    batch: int
    """Rows (of preferences: pairs) in one forward pass"""
    fewest: int
    """Rows in one step at least"""
    smallest: int = 1
    """Rows in one forward pass at least"""


DEFAULTS: Mapping[Method, Defaults] = {
    "sft": Defaults(2e-5, 2e-4, 3, 0.03, 4, fewest=1),
    "dpo": Defaults(1e-6, 1e-5, 1, 0.1, 2, fewest=4),
    "orpo": Defaults(8e-6, 8e-5, 3, 0.1, 2, fewest=4),
    "kto": Defaults(1e-6, 5e-6, 1, 0.1, 4, fewest=16, smallest=4),
}
PACKED = 2
"""Packed rows in one forward pass"""


@dataclass(frozen=True, slots=True)
class Choice:
    """Something that was chosen for the user."""

    setting: str
    value: Any
    why: str

    def __str__(self) -> str:
        return f"{self.setting}: {self.value} ({self.why})"


class Filling:
    """Training in the making: a field that is not set is filled, and that is said."""

    def __init__(self, training: Training) -> None:
        self.training = training
        self.choices: list[Choice] = []

    def __call__(self, name: str, value: Any, why: str) -> None:
        if getattr(self.training, name) is None:
            self.put(name, value)
            self.say(f"training.{name}", value, why)

    def put(self, name: str, value: Any) -> None:
        """Without a word"""
        self.training = self.training.model_copy(update={name: value})

    def say(self, setting: str, value: Any, why: str) -> None:
        """A choice that is no field of Training"""
        self.choices.append(Choice(setting, value, why))


def fill_weights(fill: Filling, *, gpu: bool, bf16: bool) -> None:
    """LoRA, and the types of weights and activations."""
    training = fill.training
    if training.lora is not None:
        _lora(fill, training.lora)
    here = "this GPU" if gpu else "this machine"
    if training.fp16:
        fill("bf16", False, "fp16 is set")
    fill(
        "bf16",
        bf16,
        f"{here} computes bfloat16" if bf16 else f"{here} does not compute bfloat16 fast",
    )
    fill("fp16", False, "bfloat16 has the range of float32, float16 has not")
    if training.load_in is not None:
        narrow = (
            "bfloat16" if fill.training.bf16 else "float16" if fill.training.fp16 else "float32"
        )
        fill("dtype", narrow, "what is not quantized, and what quantized weights are computed in")
    elif training.lora is not None or training.adapter is not None:
        fill(
            "dtype",
            "auto",
            "the base keeps its own type and is not trained; the adapter is float32",
        )
    else:
        fill("dtype", "float32", "all weights are trained: bfloat16 ones round small updates away")


def fill_rate(fill: Filling) -> None:
    """Learning rate, schedule and optimizer; what weighs the parts of a preference."""
    training = fill.training
    start = DEFAULTS[training.method]
    adapts = training.lora is not None or training.adapter is not None
    what = "an adapter" if adapts else "all weights"
    fill("learning_rate", start.adapter if adapts else start.full, f"{training.method} of {what}")
    fill("lr_scheduler_type", "cosine", "falls to 0 at the end")
    fill("optim", "adamw_torch_fused", "AdamW in one kernel")
    fill("weight_decay", 0.0, "a fine-tune is short")
    fill("max_grad_norm", 1.0, "clips the gradient of a bad batch")
    if training.method != "sft":
        fill("beta", BETA, f"the value of {training.method}'s paper and of TRL")


def fill_batches(fill: Filling, rows: int | None) -> None:
    """Rows of a step. Few rows make smaller steps, so that there are enough of them."""
    training = fill.training
    start = DEFAULTS[training.method]
    if training.max_steps is None or training.max_steps < 1:
        fill("num_train_epochs", start.epochs, f"times that {training.method} sees each row")
    wanted, epochs = EFFECTIVE, fill.training.num_train_epochs
    while rows and epochs and wanted > start.fewest and rows * epochs / wanted < STEPS:
        wanted //= 2
    most = PACKED if training.packing else start.batch
    share = wanted // (training.devices * (training.gradient_accumulation_steps or 1))
    batch = training.per_device_train_batch_size or max(start.smallest, min(most, share))
    passes = training.gradient_accumulation_steps or math.ceil(wanted / (batch * training.devices))
    few = f"; more would make under {STEPS} steps" if wanted < EFFECTIVE else ""
    why = f"{batch * passes * training.devices} rows a step{few}"
    fill("per_device_train_batch_size", batch, why)
    fill("gradient_accumulation_steps", passes, why)
    fill("per_device_eval_batch_size", batch, "as in training")


def fill_warmup(fill: Filling, rows: int | None) -> None:
    """A rising learning rate at the beginning. Its first step is made at 0: too much for a run of a few steps."""
    if fill.training.warmup_ratio is not None:
        fill.put("warmup_steps", fill.training.warmup_ratio)
    steps, share = steps_of(fill.training, rows), DEFAULTS[fill.training.method].warmup
    if steps is not None and steps * share < 1:
        fill("warmup_steps", 0, f"{steps} steps are too few to begin at a rate of 0")
    fill("warmup_steps", share, "a share of all steps")


def fill_memory(fill: Filling, *, gpu: bool, size: int | None) -> None:
    """Which activations are kept; `size`: parameters, None where they are not known."""
    if not gpu:
        why = "costs time, and memory is not what limits a CPU"
    elif size is None:
        why = "the size of the model is not known"
    else:
        why = f"{size / 1e9:.2g} billion parameters; on from 1 billion"
    fill("gradient_checkpointing", gpu and (size is None or size >= LARGE), why)
    if fill.training.use_reentrant is None:
        fill.put("use_reentrant", False)


def fill_records(fill: Filling, rows: int | None, *, evaluates: bool) -> None:
    """When a run logs, evaluates and saves: in steps where their number is known, else in shares of the run."""
    fill("output_dir", "outputs", "where the run's record, checkpoints and weights go")
    if fill.training.logging_nan_inf_filter is None:
        fill.put("logging_nan_inf_filter", False)
    steps = steps_of(fill.training, rows)
    fill("logging_steps", max(1, round(steps / 100)) if steps else 0.01, "about 100 points")
    fill("save_strategy", "steps", "a killed run goes on from its last checkpoint")
    fill("save_steps", math.ceil(steps / 4) if steps else 0.25, "about 4 checkpoints")
    fill("save_total_limit", 2, "the last ones")
    fill(
        "eval_strategy",
        "steps" if evaluates else "no",
        "on held-out rows" if evaluates else "val_size is 0",
    )
    if fill.training.eval_strategy == "steps":
        fill("eval_steps", fill.training.save_steps, "with each checkpoint")


def steps_of(training: Training, rows: int | None) -> int | None:
    """Steps of the whole run, as transformers counts them; None where the rows are not known."""
    if training.max_steps is not None and training.max_steps > 0:
        return training.max_steps
    if not rows:
        return None
    batches = math.ceil(rows / ((training.per_device_train_batch_size or 1) * training.devices))
    each = math.ceil(batches / (training.gradient_accumulation_steps or 1))
    return math.ceil(each * (training.num_train_epochs or 1))


def _lora(fill: Filling, lora: Lora) -> None:
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
        "r": "holds what some 10,000 examples teach",
        "lora_alpha": "updates are scaled by 2",
        "target_modules": "adapters on every linear layer learn as a full fine-tune does",
    }
    fill.put("lora", lora.model_copy(update=made))
    for name, value in made.items():
        fill.say(f"training.lora.{name}", value, why[name])
