"""Reads the YAML of a torchtune recipe, which names the classes of its parts (`_component_`).

What is read is what decides memory, steps and the rate: the model's folder, LoRA and 4 bits by the name of the model's
builder, batch, length, precision, optimizer. A recipe names a function that makes its rows: the local files that it
gives to torchtune's own builders are read, and those of others are counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from truetune.settings.config import Config
from truetune.settings.located_document import LocatedDocument
from truetune.settings.stacks.config_draft import ConfigDraft, draft_of_document
from truetune.settings.stacks.read_torchtune_datasets import (
    local_files_of_datasets,
    read_rows_of_datasets,
)

TORCHTUNE_RELEASE = "0.6"
DEFAULTS = {"gradient_accumulation_steps": 1}
RECIPE_KEYS = frozenset((
    "model", "tokenizer", "checkpointer", "dataset", "dataset_val", "optimizer", "lr_scheduler", "loss", "batch_size",
    "epochs", "max_steps_per_epoch", "gradient_accumulation_steps", "clip_grad_norm", "compile", "optimizer_in_bwd",
    "device", "dtype", "seed", "shuffle", "output_dir", "resume_from_checkpoint", "save_adapter_weights_only",
    "enable_activation_checkpointing", "enable_activation_offloading", "metric_logger", "log_every_n_steps",
    "log_peak_memory_stats", "log_level", "profiler", "run_val_every_n_steps", "custom_sharded_layers",
    "tensor_parallel_dim", "low_cpu_ram", "quantizer", "teacher_model", "ref_checkpointer",
))  # fmt: skip
DTYPE_NAMES = {"bf16": "bfloat16", "fp32": "float32", "fp16": "float16"}
OPTIMIZER_NAMES = {
    "adamw8bit": "adamw_8bit",
    "pagedadamw8bit": "paged_adamw_8bit",
    "pagedadamw": "paged_adamw_32bit",
    "adamw": "adamw_torch",
    "sgd": "sgd",
}
"""Class in small letters -> the name that transformers gives it"""
LEARN_PROMPTS_BY_DEFAULT = ("alpaca_dataset", "alpaca_cleaned_dataset")
"""Builders of data sets whose `train_on_input` is true where a recipe does not set it"""
MLP_MODULES = ("gate_proj", "up_proj", "down_proj")
RENAMED_MODULES = {"output_proj": "o_proj"}
"""torchtune's names of matrices that others call something else"""


def keys_that_tell_torchtune_recipe() -> frozenset[str]:
    """Keys that tell a recipe."""
    return RECIPE_KEYS


def is_torchtune_recipe(value: Mapping[Any, Any]) -> bool:
    """Does a part name a class of torchtune?"""
    return any(_component_name(part).startswith("torchtune.") for part in value.values())


def read_torchtune_config(document: LocatedDocument) -> Config:
    """A recipe's YAML. Raises SpecError."""
    draft = draft_of_document(document, "torchtune", TORCHTUNE_RELEASE, DEFAULTS)
    builder = _component_name(draft.get("model")).rpartition(".")[2]
    _read_weights_folder_or_name(draft)
    draft.put(
        "training.method", "dpo" if "DPO" in _component_name(draft.get("loss")) else "sft", "loss"
    )
    _read_lora(draft, builder)
    draft.put("training.load_in", 4 if builder.startswith("qlora_") else None, "model")
    draft.take("training.per_device_train_batch_size", "batch_size")
    draft.take("training.gradient_accumulation_steps", "gradient_accumulation_steps")
    draft.take("training.num_train_epochs", "epochs")
    _read_step_limit_of_run(draft)
    draft.take("training.max_grad_norm", "clip_grad_norm")
    draft.take("training.shuffle", "shuffle")
    draft.take("training.gradient_checkpointing", "enable_activation_checkpointing")
    draft.take("training.dtype", "dtype", made=lambda name: DTYPE_NAMES.get(str(name), str(name)))
    _read_optimizer(draft)
    datasets = _dataset_tables(draft)
    _read_labels_and_packing(draft, datasets)
    limit = draft.table("tokenizer").get("max_seq_len")
    limit = limit if isinstance(limit, int) else None
    draft.put("max_length", limit, "tokenizer")
    if draft.get("optimizer_in_bwd") is True:
        draft.notes.append(
            "optimizer_in_bwd: gradients are freed as they are made; they are counted as kept"
        )
    read_rows_of_datasets(draft, datasets)
    config = draft.make_config(RECIPE_KEYS | draft.values.keys(), limit, ())
    return replace(config, row_files=local_files_of_datasets(draft, datasets))


def _dataset_tables(draft: ConfigDraft) -> list[Mapping[str, Any]]:
    """The data sets of a recipe: one table, or a list of them, which torchtune joins."""
    named = draft.get("dataset")
    if isinstance(named, list):
        return [table for table in named if isinstance(table, Mapping)]
    return [draft.table("dataset")]


def _read_labels_and_packing(draft: ConfigDraft, datasets: list[Mapping[str, Any]]) -> None:
    """Read what is learned, and whether rows are packed; data sets of a list may differ."""
    packed = [table.get("packed") for table in datasets]
    draft.put("training.packing", packed[0] if len(set(map(str, packed))) == 1 else None, "dataset")
    learns_all = bool(datasets) and all(map(_are_prompts_of_dataset_learned, datasets))
    draft.put("learn", {"what": "all"} if learns_all else None, "dataset")


def _are_prompts_of_dataset_learned(table: Mapping[str, Any]) -> bool:
    """Are the prompts of a data set learned? By default those of torchtune's Alpaca builders are."""
    builder = _component_name(table).rpartition(".")[2]
    return table.get("train_on_input", builder in LEARN_PROMPTS_BY_DEFAULT) is True


def _component_name(part: Any) -> str:
    """The `_component_` of a part: `torchtune.models.llama3_2.lora_llama3_2_3b`; empty if it has
    none.
    """
    return str(part.get("_component_", "")) if isinstance(part, Mapping) else ""


def _read_weights_folder_or_name(draft: ConfigDraft) -> None:
    """Read the folder of the weights; if it is not on this machine, its last name."""
    folder = draft.table("checkpointer").get("checkpoint_dir")
    if not isinstance(folder, str):
        return
    found = draft.find(folder)
    named = str(found) if found is not None else Path(folder).name
    draft.put("model", named, "checkpointer")
    draft.put("tokenizer", named if found is not None else None, "tokenizer", "checkpointer")


def _read_step_limit_of_run(draft: ConfigDraft) -> None:
    """Read the limit of steps for the whole run; torchtune limits those of each epoch."""
    steps, epochs = draft.get("max_steps_per_epoch"), draft.get("epochs")
    if type(steps) is int and type(epochs) is int:
        draft.put("training.max_steps", steps * epochs, "max_steps_per_epoch")


def _read_lora(draft: ConfigDraft, builder: str) -> None:
    """Read the settings of LoRA, by the name of the model's builder."""
    if not builder.startswith(("lora_", "qlora_")):
        return
    model = draft.table("model")
    # An empty list stays empty: a recipe without any module is a fault of its own.
    attention = [str(name) for name in model.get("lora_attn_modules", ("q_proj", "v_proj")) or ()]
    targets = [RENAMED_MODULES.get(name, name) for name in attention]
    if model.get("apply_lora_to_mlp") is True:
        targets += MLP_MODULES
    if model.get("apply_lora_to_output") is True:
        targets.append("lm_head")
    rank = model.get("lora_rank", 8)
    lora = {
        "r": rank,
        "lora_alpha": model.get("lora_alpha", 2 * rank if isinstance(rank, int) else 16),
        "lora_dropout": model.get("lora_dropout", 0.0),
        "target_modules": targets,
        "use_dora": model.get("use_dora"),
    }
    draft.put(
        "training.lora", {key: value for key, value in lora.items() if value is not None}, "model"
    )


def _read_optimizer(draft: ConfigDraft) -> None:
    """Read the optimizer and its learning rate."""
    optimizer, schedule = draft.table("optimizer"), draft.table("lr_scheduler")
    name = _component_name(optimizer).rpartition(".")[2]
    draft.put(
        "training.optim", OPTIMIZER_NAMES.get(name.lower(), name.lower() or None), "optimizer"
    )
    draft.put("training.learning_rate", optimizer.get("lr"), "optimizer")
    draft.put("training.weight_decay", optimizer.get("weight_decay"), "optimizer")
    draft.put("training.warmup_steps", schedule.get("num_warmup_steps"), "lr_scheduler")
    is_cosine = "cosine" in _component_name(schedule)
    draft.put("training.lr_scheduler_type", "cosine" if is_cosine else None, "lr_scheduler")
