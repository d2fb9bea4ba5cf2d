"""Contradictions: settings of a run that cannot all hold, each with what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from truetune.errors import UsageError
from truetune.spec.run import RunSpec
from truetune.spec.training import Training

SUPPORTED = ("sft", "dpo", "orpo", "kto")
ELSEWHERE = {
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
OF_PREFERENCES = {
    "beta": ("dpo", "orpo", "kto"),
    "loss_type": ("dpo", "kto"),
    "reference": ("dpo", "kto"),
    "precompute_ref_log_probs": ("dpo", "kto"),
    "disable_dropout": ("dpo", "orpo", "kto"),
    "desirable_weight": ("kto",),
    "undesirable_weight": ("kto",),
}
OURS = {
    "max_length": "set max_length beside training",
    "packing": "set encode.packing",
    "remove_unused_columns": "truetune needs its columns; leave it out",
    "model_init_kwargs": "set training.dtype and training.attn_implementation",
    "label_names": "truetune names the labels; leave it out",
}
"""Arguments of trainers that contradict what truetune does before them"""
COUNTS = (
    "per_device_train_batch_size",
    "per_device_eval_batch_size",
    "gradient_accumulation_steps",
    "num_train_epochs",
)
WITHOUT_KL = ("apo_zero_unpaired",)
"""Losses of KTO that need no other rows in the batch"""


def refuse(
    spec: RunSpec, training: Training, trainer: Mapping[str, Any], *, gpu: bool, bf16: bool
) -> None:
    """Raises UsageError with every contradiction that was found, one a line."""
    if training.method not in SUPPORTED:
        raise UsageError(
            f"training.method: {training.method} is not trained here; there are"
            f" {', '.join(SUPPORTED)}"
        )
    found = [
        *_other_trainer(spec),
        *_strangers(training, trainer),
        *_rows(spec, training),
        *_weights(training, gpu=gpu, bf16=bf16),
    ]
    found += _preferences(training, trainer)
    if training.warmup_ratio is not None and training.warmup_steps is not None:
        found.append(
            "training.warmup_ratio and training.warmup_steps are both set; keep warmup_steps (a"
            " share below 1)"
        )
    if found:
        raise UsageError("\n".join(found))


def _other_trainer(spec: RunSpec) -> Iterator[str]:
    if spec.trained_by not in (None, "truetune"):
        yield f"trained_by: {spec.trained_by} is another trainer than truetune train; leave it out"


def _strangers(training: Training, trainer: Mapping[str, Any]) -> Iterator[str]:
    for name, remedy in ELSEWHERE.items():
        if getattr(training, name) not in (None, False, {}):
            yield f"training.{name} is a setting of other trainers: {remedy}"
    for name in trainer:
        if name in OURS:
            yield f"trainer.{name}: {OURS[name]}"
    for name, methods in OF_PREFERENCES.items():
        if getattr(training, name) is not None and training.method not in methods:
            yield (
                f"training.{name} means nothing to {training.method}, only to {', '.join(methods)};"
                " leave it out"
            )


def _rows(spec: RunSpec, training: Training) -> Iterator[str]:
    for name in COUNTS:
        if (count := getattr(training, name)) is not None and count <= 0:
            yield f"training.{name}: {count} is too few; leave it out"
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
    if training.packing_strategy not in (None, "bfd", "best-fit"):
        yield (
            f"training.packing_strategy: {training.packing_strategy} cuts or mixes examples; leave"
            " it out (best-fit)"
        )


def _weights(training: Training, *, gpu: bool, bf16: bool) -> Iterator[str]:
    adapts = training.lora is not None or training.adapter is not None
    if training.bf16 and training.fp16:
        yield "training.bf16 and training.fp16 are both true; keep bf16"
    if training.bf16 and gpu and not bf16:
        yield (
            "training.bf16: this GPU does not compute bfloat16; set bf16: false (float32), or fp16:"
            " true"
        )
    if training.fp16 and not gpu:
        yield "training.fp16: float16 is for GPUs; leave it out"
    if training.lora is not None and training.adapter is not None:
        yield "training.adapter brings its own LoRA settings; leave training.lora out"
    if training.load_in is not None and not adapts:
        yield (
            f"training.load_in: {training.load_in}-bit weights cannot be trained; set training.lora"
            " too (lora: {})"
        )
    if training.load_in is not None and not gpu:
        yield "training.load_in: quantized training needs a GPU (bitsandbytes); leave load_in out"
    if training.dtype in ("float16", "fp16", "half") and not adapts:
        yield (
            "training.dtype: float16 weights cannot be trained (small updates become 0); set dtype:"
            " float32"
        )
    if training.fsdp and training.deepspeed_stage:
        yield "training.fsdp and training.deepspeed_stage are both set; keep one"


def _preferences(training: Training, trainer: Mapping[str, Any]) -> Iterator[str]:
    if training.method != "kto" or training.loss_type in WITHOUT_KL:
        return
    if training.per_device_train_batch_size == 1:
        yield (
            "training.per_device_train_batch_size: KTO compares the rows of a batch, 1 row has no"
            " other; set at least 4 (2 do, with a poor estimate)"
        )
    if trainer.get("train_sampling_strategy", "sequential") != "sequential":
        yield (
            "trainer.train_sampling_strategy: KTO pairs each row with its neighbours; leave it out"
            " (sequential)"
        )
