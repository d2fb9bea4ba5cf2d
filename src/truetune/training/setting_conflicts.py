"""Finds settings of a run that cannot all hold, and says for each what to do.

Every conflict is a sentence, and all are told at once. Rules about data stand in `checks`; here is what would make the
trainer fail, or quietly do something else than the settings say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from truetune.errors import UsageError
from truetune.settings.run_spec import RunSpec
from truetune.settings.training_settings import Training

SUPPORTED_METHODS = ("sft", "dpo", "orpo", "kto", "grpo")
OTHER_STACKS = {
    "train_on_inputs": "set learn: all (or assistant)",
    "assistant_only_loss": "set learn: assistant",
    "completion_only_loss": "set learn: completion",
    "skip_prepare_dataset": "truetune encodes the rows itself; leave it out",
    "prepared_path": "encoded rows are kept in truetune's cache; leave it out",
    "remove_unused_columns": "the rows have the columns that the trainer needs; leave it out",
    "pads_masked_by": "pads are masked by their position; leave it out",
    "eval_logits_kept": "an evaluation keeps losses alone; leave it out",
    "shuffle": "rows are shuffled by the seed; leave it out",
    "device_map": "training puts the model on one device a process; leave it out",
    "eval_packing": "evaluation rows are never packed; leave it out",
    "other": "put the arguments of the trainer under trainer",
}
"""Settings of other stacks that `truetune train` takes by another name, or not at all"""
METHODS_OF_SETTINGS = {
    "beta": ("dpo", "orpo", "kto", "grpo"),
    "loss_type": ("dpo", "kto", "grpo"),
    "reference": ("dpo", "kto"),
    "precompute_ref_log_probs": ("dpo", "kto"),
    "disable_dropout": ("dpo", "orpo", "kto", "grpo"),
    "desirable_weight": ("kto",),
    "undesirable_weight": ("kto",),
    "rewards": ("grpo",),
    "reward_weights": ("grpo",),
    "num_generations": ("grpo",),
    "max_completion_length": ("grpo",),
}
"""Settings that some methods alone have"""
SET_BY_TRUETUNE = {
    "max_length": "set max_length beside training",
    "packing": "set encode.packing",
    "remove_unused_columns": "truetune needs its columns; leave it out",
    "model_init_kwargs": "set training.dtype and training.attn_implementation",
    "label_names": "truetune names the labels; leave it out",
}
"""Arguments of trainers that contradict what truetune does before them"""
POSITIVE_COUNTS = (
    "per_device_train_batch_size",
    "per_device_eval_batch_size",
    "gradient_accumulation_steps",
    "num_train_epochs",
)
LOSSES_WITHOUT_KL = ("apo_zero_unpaired",)
"""Losses of KTO that need no other rows in the batch"""


def refuse_conflicts(
    spec: RunSpec, training: Training, trainer: Mapping[str, Any], *, gpu: bool, bf16: bool
) -> None:
    """Raise UsageError with every conflict, one a line.

    Args:
        spec: as the user gave it.
        training: its settings of the training, with what `trainer` says of them.
        trainer: arguments that have no field.
        gpu: the run is on a GPU.
        bf16: the machine computes bfloat16 fast.
    """
    if training.method not in SUPPORTED_METHODS:
        raise UsageError(
            f"training.method: {training.method} is not trained here; there are"
            f" {', '.join(SUPPORTED_METHODS)}"
        )
    # All conflicts at once: a user who has to run the command once for each loses minutes.
    conflicts = [
        *_settings_meant_for_other_program(spec),
        *_conflicts_of_own_or_renamed_arguments(training, trainer),
        *_batch_and_packing_conflicts(spec, training),
        *_weight_adapter_and_format_conflicts(training, gpu=gpu, bf16=bf16),
    ]
    conflicts += _kto_batch_conflicts(training, trainer)
    conflicts += _grpo_conflicts(training, trainer)
    if training.warmup_ratio is not None and training.warmup_steps is not None:
        conflicts.append(
            "training.warmup_ratio and training.warmup_steps are both set; keep warmup_steps (a"
            " share below 1)"
        )
    if conflicts:
        raise UsageError("\n".join(conflicts))


def _settings_meant_for_other_program(spec: RunSpec) -> Iterator[str]:
    """Settings that are meant for another program."""
    if spec.trained_by not in (None, "truetune"):
        yield f"trained_by: {spec.trained_by} is another trainer than truetune train; leave it out"


def _conflicts_of_own_or_renamed_arguments(
    training: Training, trainer: Mapping[str, Any]
) -> Iterator[str]:
    """Settings and arguments that this program sets itself, or has under another name."""
    for name, remedy in OTHER_STACKS.items():
        # A setting that is off asks for nothing, and readers of other trainers' configs fill many
        # with their defaults.
        if getattr(training, name) not in (None, False, {}):
            yield f"training.{name} is a setting of other trainers: {remedy}"
    for name in trainer:
        if name in SET_BY_TRUETUNE:
            yield f"trainer.{name}: {SET_BY_TRUETUNE[name]}"
    for name, methods in METHODS_OF_SETTINGS.items():
        if getattr(training, name) not in (None, ()) and training.method not in methods:
            yield (
                f"training.{name} means nothing to {training.method}, only to {', '.join(methods)};"
                " leave it out"
            )


def _batch_and_packing_conflicts(spec: RunSpec, training: Training) -> Iterator[str]:
    """Conflicts among the settings of batches and packing."""
    for name in POSITIVE_COUNTS:
        count = getattr(training, name)
        if count is not None and count <= 0:
            yield f"training.{name}: {count} is too few; leave it out"
    # encode.packing has a default, so that only the set of fields that were written tells whether
    # the user said it.
    by_encode = "packing" in spec.encode.model_fields_set
    packed = spec.encode.packing == "best-fit"
    if training.packing is not None and by_encode and training.packing != packed:
        yield (
            f"training.packing: {str(training.packing).lower()} contradicts encode.packing:"
            f" {spec.encode.packing}; leave training.packing out"
        )
    elif training.method != "sft" and (training.packing or (by_encode and packed)):
        yield (
            f"encode.packing: {training.method} compares whole answers, which cannot share a row;"
            " set it to none"
        )
    # bfd is TRL's name for best-fit decreasing, which is what we do.
    if training.packing_strategy not in (None, "bfd", "best-fit"):
        yield (
            f"training.packing_strategy: {training.packing_strategy} cuts or mixes examples; leave"
            " it out (best-fit)"
        )


def _weight_adapter_and_format_conflicts(
    training: Training, *, gpu: bool, bf16: bool
) -> Iterator[str]:
    """Conflicts among the settings of weights, adapters and their number formats."""
    adapts = training.lora is not None or training.adapter is not None
    yield from _number_format_conflicts(training, gpu=gpu, bf16=bf16)
    yield from _adapter_conflicts(training, adapts=adapts, gpu=gpu)
    # The smallest step of float16 near 1 is 1e-3: a weight plus a learning rate of 1e-5 times a
    # gradient is the same weight again.
    if training.dtype in ("float16", "fp16", "half") and not adapts:
        yield (
            "training.dtype: float16 weights cannot be trained (small updates become 0); set dtype:"
            " float32"
        )
    if training.fsdp and training.deepspeed_stage:
        yield "training.fsdp and training.deepspeed_stage are both set; keep one"


def _number_format_conflicts(training: Training, *, gpu: bool, bf16: bool) -> Iterator[str]:
    """Conflicts of number formats: those that the machine cannot compute in, or not both at once."""
    if training.bf16 and training.fp16:
        yield "training.bf16 and training.fp16 are both true; keep bf16"
    # GPUs before Ampere emulate bfloat16 at a fraction of the speed: such a run would work, and
    # take days.
    if training.bf16 and gpu and not bf16:
        yield (
            "training.bf16: this GPU does not compute bfloat16; set bf16: false (float32), or fp16:"
            " true"
        )
    if training.fp16 and not gpu:
        yield "training.fp16: float16 is for GPUs; leave it out"


def _adapter_conflicts(training: Training, *, adapts: bool, gpu: bool) -> Iterator[str]:
    """Conflicts between an adapter, a quantized base and the machine."""
    if training.lora is not None and training.adapter is not None:
        yield "training.adapter brings its own LoRA settings; leave training.lora out"
    if training.load_in is not None and not adapts:
        yield (
            f"training.load_in: {training.load_in}-bit weights cannot be trained; set training.lora"
            " too (lora: {})"
        )
    if training.load_in is not None and not gpu:
        yield "training.load_in: quantized training needs a GPU (bitsandbytes); leave load_in out"


def _kto_batch_conflicts(training: Training, trainer: Mapping[str, Any]) -> Iterator[str]:
    """Conflicts of the batch settings with what KTO needs."""
    if training.method != "kto" or training.loss_type in LOSSES_WITHOUT_KL:
        return
    # The KL term takes the answer of another row in the batch for an answer to this prompt. With
    # one row there is no other.
    if training.per_device_train_batch_size == 1:
        yield (
            "training.per_device_train_batch_size: KTO compares the rows of a batch, 1 row has no"
            " other; set at least 4 (2 do, with a poor estimate)"
        )
    # The pairs were made so that neighbours have different prompts and answers; any other order
    # brings equal ones together.
    if trainer.get("train_sampling_strategy", "sequential") != "sequential":
        yield (
            "trainer.train_sampling_strategy: KTO pairs each row with its neighbours; leave it out"
            " (sequential)"
        )


def _grpo_conflicts(training: Training, trainer: Mapping[str, Any]) -> Iterator[str]:
    """Conflicts of the settings of a training by rewards."""
    if training.method != "grpo":
        return
    if not training.rewards:
        yield (
            "training.rewards: grpo needs at least one: FILE.py:FUNCTION, MODULE:FUNCTION, exact,"
            " or agrees:PARSER (agrees:number)"
        )
    if training.reward_weights is not None and len(training.reward_weights) != len(
        training.rewards
    ):
        yield (
            f"training.reward_weights: {len(training.reward_weights)} weights for"
            f" {len(training.rewards)} rewards; give one for each"
        )
    # The advantage of an answer is its reward less the mean of its group: of one answer it is 0.
    if training.num_generations is not None and training.num_generations < 2:
        yield "training.num_generations: an answer is compared with others to its prompt; set 2 or more"
    if training.max_completion_length is not None and training.max_completion_length < 1:
        yield (
            f"training.max_completion_length: {training.max_completion_length} is too few; leave it"
            " out"
        )
    if training.eval_strategy not in (None, "no"):
        yield (
            "training.eval_strategy: the loss of grpo says nothing of held-out rows, whose prompts"
            " are answered instead (watch); leave it out"
        )
    for name in ("environment_factory", "tools", "rollout_func"):
        if name in trainer:
            yield f"trainer.{name}: truetune train samples one answer to each prompt; leave it out"
