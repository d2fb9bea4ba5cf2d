"""Fills the settings of a run that the user left open.

`SettingsBuilder` fills a field only where it is not set, and keeps what was chosen and why. The functions go by topic,
and a later one may read what an earlier one has filled. The values are conservative: they train, they are not tuned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from truetune.settings.training_settings import Lora, Method, Training

# Chosen, not measured: twice as much doubles the activations of a step, and half leaves out more of
# the long answers of reasoning data.
DEFAULT_MAX_LENGTH = 2048
"""Tokens of a row where no max_length is set, and the model takes as many"""
# Chosen, not measured (docs/recipes.md names sources): twice as many halve the number of steps of a
# small set, half as many make the gradient noisier.
EFFECTIVE_BATCH = 16
"""Rows in one step of the optimizer"""
# Chosen, not measured: with fewer, warmup and decay leave hardly a step at the full rate. Twice as
# many steps mean smaller batches for more sets, half as many fewer updates.
MIN_STEPS = 50
"""Where there would be fewer steps, each takes fewer rows"""
# Chosen, not measured: smaller models have room to spare on GPUs of today, and checkpointing costs
# them about a quarter of the time.
LARGE_PARAMETERS = 1_000_000_000
"""Parameters from which a GPU keeps few activations (gradient checkpointing)"""
# Chosen, not measured (docs/recipes.md names sources): twice the rank doubles the adapter and its
# optimizer, half of it holds less of a large set.
LORA_RANK = 16
# The value of the papers and TRL's default; ORPO's lambda goes by this name in TRL.
PREFERENCE_BETA = 0.1
# TRL's default; chosen there, not measured here. A group of half as many tells good from bad answers half as often,
# and twice as many double the time of a step.
GROUP_SIZE = 8
"""Answers to one prompt of a training by rewards"""
# TRL's default.
MAX_COMPLETION_TOKENS = 256
"""Tokens after which an answer of a training by rewards is cut"""
# Chosen, not measured: the gradient of one prompt's group is noise about that prompt; twice as many double the time
# of a step.
GROUPS_PER_STEP = 4
"""Prompts in one step of a training by rewards"""


class MethodDefaults(NamedTuple):
    """The default settings of one training method."""

    full: float
    """Learning rate where all weights are trained"""
    adapter: float
    """Learning rate of an adapter"""
    epochs: int
    warmup: float
    """Share of the steps"""
    batch: int
    """Rows (of preferences: pairs; of rewards: sampled answers) in one forward pass"""
    fewest: int
    """Rows in one step at least"""
    smallest: int = 1
    """Rows in one forward pass at least"""


# An adapter takes a rate five to ten times that of full training (docs/recipes.md). KTO's batch is
# never below 4: its KL term is estimated from the other rows of the batch.
DEFAULTS: Mapping[Method, MethodDefaults] = {
    "sft": MethodDefaults(2e-5, 2e-4, 3, 0.03, 4, fewest=1),
    "dpo": MethodDefaults(1e-6, 1e-5, 1, 0.1, 2, fewest=4),
    "orpo": MethodDefaults(8e-6, 8e-5, 3, 0.1, 2, fewest=4),
    "kto": MethodDefaults(1e-6, 5e-6, 1, 0.1, 4, fewest=16, smallest=4),
    "grpo": MethodDefaults(1e-6, 1e-5, 1, 0.1, 8, fewest=8),
}
# A packed row is full, so that two of them are as many tokens as a batch of 4 short examples and
# more; chosen, not measured.
PACKED_BATCH = 2
"""Packed rows in one forward pass"""


@dataclass(frozen=True, slots=True)
class Choice:
    """Something that was chosen for the user, with its value and the reason."""

    setting: str
    value: Any
    why: str

    def __str__(self) -> str:
        return f"{self.setting}: {self.value} ({self.why})"


class SettingsBuilder:
    """Training settings in the making: a field that is not set is filled, and recorded as a choice."""

    def __init__(self, training: Training) -> None:
        self.training = training
        self.choices: list[Choice] = []

    def __call__(self, name: str, value: Any, why: str) -> None:
        if getattr(self.training, name) is None:
            self.put_silently(name, value)
            self.record_choice(f"training.{name}", value, why)

    def put_silently(self, name: str, value: Any) -> None:
        """Set a field without recording a choice."""
        self.training = self.training.model_copy(update={name: value})

    def record_choice(self, setting: str, value: Any, why: str) -> None:
        """Record a choice that is no field of Training."""
        self.choices.append(Choice(setting, value, why))


def fill_lora_and_number_formats(fill: SettingsBuilder, *, gpu: bool, bf16: bool) -> None:
    """Fill LoRA, and the types of weights and activations.

    Args:
        fill: the settings in the making.
        gpu: the run is on a GPU.
        bf16: the machine computes bfloat16 fast.
    """
    training = fill.training
    if training.lora is not None:
        _fill_lora(fill, training.lora)
    here = "this GPU" if gpu else "this machine"
    # A user who asks for fp16 must not get bf16 by default too: transformers refuses both.
    if training.fp16:
        fill("bf16", False, "fp16 is set")
    fill(
        "bf16",
        bf16,
        f"{here} computes bfloat16" if bf16 else f"{here} does not compute bfloat16 fast",
    )
    # Said even where nobody asked: float16 overflows at 65,504, which gradients reach without loss
    # scaling.
    fill("fp16", False, "bfloat16 has the range of float32, float16 has not")
    if training.load_in is not None:
        narrow = "float32"
        if fill.training.bf16:
            narrow = "bfloat16"
        elif fill.training.fp16:
            narrow = "float16"
        fill("dtype", narrow, "what is not quantized, and what quantized weights are computed in")
    elif training.lora is not None or training.adapter is not None:
        fill(
            "dtype",
            "auto",
            "the base keeps its own type and is not trained; the adapter is float32",
        )
    else:
        fill("dtype", "float32", "all weights are trained: bfloat16 ones round small updates away")


def fill_rate_schedule_and_optimizer(fill: SettingsBuilder) -> None:
    """Fill learning rate, schedule and optimizer, and what weighs the parts of a preference loss."""
    training = fill.training
    start = DEFAULTS[training.method]
    adapts = training.lora is not None or training.adapter is not None
    what = "an adapter" if adapts else "all weights"
    fill("learning_rate", start.adapter if adapts else start.full, f"{training.method} of {what}")
    fill("lr_scheduler_type", "cosine", "falls to 0 at the end")
    fill("optim", "adamw_torch_fused", "AdamW in one kernel")
    fill("weight_decay", 0.0, "a fine-tune is short")
    fill("max_grad_norm", 1.0, "clips the gradient of a bad batch")
    if training.method == "grpo":
        fill("beta", 0.0, "no reference model: TRL's default, and a third less memory and time")
    elif training.method != "sft":
        fill("beta", PREFERENCE_BETA, f"the value of {training.method}'s paper and of TRL")


def fill_sampled_answers(fill: SettingsBuilder) -> None:
    """Fill how many answers a training by rewards samples, and how long they may be."""
    if fill.training.method != "grpo":
        return
    fill("num_generations", GROUP_SIZE, "answers to a prompt, which are compared with each other")
    fill("max_completion_length", MAX_COMPLETION_TOKENS, "tokens of a sampled answer, as in TRL")


def _rows_per_step_for_enough_steps(rows: int | None, epochs: float | None, fewest: int) -> int:
    """The usual number of rows a step, or less (but no less than `fewest`) where there would be under MIN_STEPS."""
    wanted = EFFECTIVE_BATCH
    # Halved, not set to the exact quotient, so that batches stay powers of two, which accumulate
    # without a remainder.
    while rows and epochs and wanted > fewest and rows * epochs / wanted < MIN_STEPS:
        wanted //= 2
    return wanted


def fill_rows_per_step(fill: SettingsBuilder, rows: int | None) -> None:
    """Fill how many rows a step has. Few rows make smaller steps, so that there are enough of them."""
    training = fill.training
    start = DEFAULTS[training.method]
    if training.method == "grpo":
        _fill_groups_per_step(fill)
        return
    if training.max_steps is None or training.max_steps < 1:
        fill("num_train_epochs", start.epochs, f"times that {training.method} sees each row")
    wanted = _rows_per_step_for_enough_steps(rows, fill.training.num_train_epochs, start.fewest)
    most = PACKED_BATCH if training.packing else start.batch
    # What one device has to take of the batch; with accumulation set by the user, that takes its
    # part first.
    share = wanted // (training.devices * (training.gradient_accumulation_steps or 1))
    batch = training.per_device_train_batch_size or max(start.smallest, min(most, share))
    passes = training.gradient_accumulation_steps or math.ceil(wanted / (batch * training.devices))
    few = f"; more would make under {MIN_STEPS} steps" if wanted < EFFECTIVE_BATCH else ""
    why = f"{batch * passes * training.devices} rows a step{few}"
    fill("per_device_train_batch_size", batch, why)
    fill("gradient_accumulation_steps", passes, why)
    fill("per_device_eval_batch_size", batch, "as in training")


def _fill_groups_per_step(fill: SettingsBuilder) -> None:
    """Fill the batches of a training by rewards: whole groups of answers, one group in a forward pass."""
    training = fill.training
    start, group = DEFAULTS[training.method], training.num_generations or GROUP_SIZE
    if training.max_steps is None or training.max_steps < 1:
        fill("num_train_epochs", start.epochs, "times that grpo samples answers to each prompt")
    batch = training.per_device_train_batch_size or group
    wanted = GROUPS_PER_STEP * group
    passes = training.gradient_accumulation_steps or math.ceil(wanted / (batch * training.devices))
    prompts = batch * passes * training.devices / group
    why = f"{prompts:g} prompts of {group} answers a step"
    fill("per_device_train_batch_size", batch, why)
    fill("gradient_accumulation_steps", passes, why)
    fill("per_device_eval_batch_size", batch, "as in training")


def fill_warmup(fill: SettingsBuilder, rows: int | None) -> None:
    """Fill the warm-up of the learning rate. Its first step is made at 0: too much for a run of a
    few steps.
    """
    if fill.training.warmup_ratio is not None:
        fill.put_silently("warmup_steps", fill.training.warmup_ratio)
    steps, share = count_optimizer_steps(fill.training, rows), DEFAULTS[fill.training.method].warmup
    # transformers rounds up: one warmup step out of ten would be made at a rate of 0, and lost.
    if steps is not None and steps * share < 1:
        fill("warmup_steps", 0, f"{steps} steps are too few to begin at a rate of 0")
    fill("warmup_steps", share, "a share of all steps")


def fill_gradient_checkpointing(
    fill: SettingsBuilder, *, gpu: bool, parameters: int | None
) -> None:
    """Fill gradient checkpointing: which activations are kept. `parameters`: their number, None if unknown."""
    if not gpu:
        why = "costs time, and memory is not what limits a CPU"
    elif parameters is None:
        why = "the size of the model is not known"
    else:
        why = f"{parameters / 1e9:.2g} billion parameters; on from 1 billion"
    # An unknown size is taken for a large one: out of memory ends a run, and checkpointing only
    # slows it.
    fill(
        "gradient_checkpointing",
        gpu and (parameters is None or parameters >= LARGE_PARAMETERS),
        why,
    )
    if fill.training.use_reentrant is None:
        # The reentrant form computes no gradients behind frozen inputs, as adapters have.
        fill.put_silently("use_reentrant", False)


def fill_logging_and_saving(fill: SettingsBuilder, rows: int | None, *, evaluates: bool) -> None:
    """When a run logs, evaluates and saves: in steps where their number is known, else in shares of the run."""
    fill("output_dir", "outputs", "where the run's record, checkpoints and weights go")
    if fill.training.logging_nan_inf_filter is None:
        fill.put_silently("logging_nan_inf_filter", False)
    steps = count_optimizer_steps(fill.training, rows)
    # Shares below 1 are transformers' own notation for "this part of all steps"; they serve before
    # the rows are counted.
    fill("logging_steps", max(1, round(steps / 100)) if steps else 0.01, "about 100 points")
    fill("save_strategy", "steps", "a killed run continues from its last checkpoint")
    fill("save_steps", math.ceil(steps / 4) if steps else 0.25, "about 4 checkpoints")
    # Two, so that one is left whole while the next is written; each takes as much room as weights
    # and optimizer.
    fill("save_total_limit", 2, "the last ones")
    fill(
        "eval_strategy",
        "steps" if evaluates else "no",
        "on held-out rows" if evaluates else "val_size is 0",
    )
    if fill.training.eval_strategy == "steps":
        # load_best_model_at_end needs an evaluation at each checkpoint, and a figure for each lets
        # the user choose one later.
        fill("eval_steps", fill.training.save_steps, "with each checkpoint")


def count_optimizer_steps(training: Training, rows: int | None) -> int | None:
    """Steps of the whole run, as transformers counts them; None where the rows are not known."""
    if training.max_steps is not None and training.max_steps > 0:
        return training.max_steps
    if not rows:
        return None
    # A prompt of a training by rewards stands in the batches once for each answer to it.
    rows *= training.num_generations or 1
    # transformers rounds up twice: the last batch of an epoch may be short, and so may its last
    # accumulation.
    batches = math.ceil(rows / ((training.per_device_train_batch_size or 1) * training.devices))
    each = math.ceil(batches / (training.gradient_accumulation_steps or 1))
    return math.ceil(each * (training.num_train_epochs or 1))


def _fill_lora(fill: SettingsBuilder, lora: Lora) -> None:
    """Fill rank, scale and layers of an adapter, where the user left them open."""
    set_by_user = lora.model_fields_set
    chosen: dict[str, Any] = {}
    if "r" not in set_by_user:
        chosen["r"] = LORA_RANK
    rank = chosen.get("r", lora.r)
    if "lora_alpha" not in set_by_user:
        # rsLoRA scales by alpha / sqrt(r), so that this keeps the same factor of 2.
        chosen["lora_alpha"] = 2 * math.sqrt(rank) if lora.use_rslora else 2 * rank
    if lora.target_modules is None:
        chosen["target_modules"] = "all-linear"
    why = {
        "r": "holds what some 10,000 examples teach",
        "lora_alpha": "updates are scaled by 2",
        "target_modules": "adapters on every linear layer learn as a full fine-tune does",
    }
    fill.put_silently("lora", lora.model_copy(update=chosen))
    for name, value in chosen.items():
        fill.record_choice(f"training.lora.{name}", value, why[name])
