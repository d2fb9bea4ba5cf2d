"""Reads the YAML that `litgpt finetune --config` and `litgpt pretrain --config` take.

LoRA is a switch for each kind of matrix (`lora_query: true`); a file that has `lora_r` is one of `finetune_lora`, which
trains nothing else. The rows are those of a class of LitGPT (`data.class_path`), and are not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from truetune.settings.config import Config
from truetune.settings.located_document import LocatedDocument
from truetune.settings.stacks.config_draft import ConfigDraft
from truetune.settings.stacks.read_nested_rl_settings import (
    draft_with_dotted_names,
    set_field_to_number,
)

LITGPT_RELEASE = "0.5"
LITGPT_KEYS = frozenset((
    "checkpoint_dir", "out_dir", "precision", "quantize", "devices", "num_nodes", "lora_r", "lora_alpha",
    "lora_dropout", "lora_query", "lora_key", "lora_value", "lora_projection", "lora_mlp", "lora_head", "data", "train",
    "eval", "logger_name", "seed", "optimizer", "model_name", "model_config", "initial_checkpoint_dir", "resume",
    "tokenizer_dir", "access_token", "log", "generator", "multi_adapter",
))  # fmt: skip
MATRICES_OF_SWITCHES: Mapping[str, tuple[str, ...]] = {
    "lora_query": ("q_proj",),
    "lora_key": ("k_proj",),
    "lora_value": ("v_proj",),
    "lora_projection": ("o_proj",),
    "lora_mlp": ("gate_proj", "up_proj", "down_proj"),
    "lora_head": ("lm_head",),
}
"""LitGPT's switch -> the matrices that get an adapter, as others call them"""
SWITCHED_ON_BY_DEFAULT = ("lora_query", "lora_value")
DTYPE_OF_PRECISION = {"bf16-true": "bfloat16", "16-true": "float16", "32-true": "float32"}
"""Precision of Fabric -> the type of the weights; `mixed` ones keep float32"""
RATE = "optimizer.init_args.lr"
MASK_PROMPT = "data.init_args.mask_prompt"


def litgpt_keys() -> frozenset[str]:
    """The keys at the top of LitGPT's files."""
    return LITGPT_KEYS


def is_litgpt(value: Mapping[Any, Any]) -> bool:
    """Are these settings of LitGPT: its own names of the model, and batches in its table `train`?"""
    train = value.get("train")
    return (
        isinstance(train, Mapping)
        and {"global_batch_size", "micro_batch_size"} & set(map(str, train)) != set()
        and any(key in value for key in ("checkpoint_dir", "model_name", "initial_checkpoint_dir"))
        and any(key in value for key in ("out_dir", "logger_name", "precision", "data"))
    )


def read_litgpt_config(document: LocatedDocument) -> Config:
    """The settings of LitGPT in a file. Raises SpecError."""
    draft = draft_with_dotted_names(document, "litgpt", LITGPT_RELEASE, {})
    folder = draft.get("checkpoint_dir", "initial_checkpoint_dir", "model_name")
    if isinstance(folder, str):
        local_folder = draft.find(folder)
        named = str(local_folder) if local_folder is not None else Path(folder).name
        draft.put("model", named, "checkpoint_dir", "initial_checkpoint_dir", "model_name")
    is_pretraining = "checkpoint_dir" not in draft.values
    draft.put("training.method", "pretrain" if is_pretraining else "sft", "train")
    _read_lora(draft)
    _read_batches(draft)
    set_field_to_number(draft, "training.learning_rate", RATE)
    set_field_to_number(draft, "training.weight_decay", "optimizer.init_args.weight_decay")
    set_field_to_number(draft, "training.num_train_epochs", "train.epochs")
    set_field_to_number(draft, "training.max_steps", "train.max_steps")
    set_field_to_number(draft, "training.warmup_steps", "train.lr_warmup_steps")
    set_field_to_number(draft, "training.max_grad_norm", "train.max_norm")
    draft.take(
        "training.dtype",
        "precision",
        made=lambda name: DTYPE_OF_PRECISION.get(str(name), "float32"),
    )
    # Left out, prompts are learned too; that is LitGPT's default, and what its published files do.
    if draft.get(MASK_PROMPT) is False:
        draft.put("training.train_on_inputs", True, MASK_PROMPT)
    limit = draft.get("train.max_seq_length")
    limit = limit if type(limit) is int else None
    draft.put("max_length", limit, "train.max_seq_length")
    draft.notes.append("settings of LitGPT: its rows are not read; name them beside it")
    return draft.make_config({*draft.values, *LITGPT_KEYS}, limit, ())


def _read_lora(draft: ConfigDraft) -> None:
    """The adapter: its rank, and the matrices whose switches are on."""
    rank = draft.get("lora_r")
    if type(rank) is not int:
        return
    targets: list[str] = []
    for switch, matrices in MATRICES_OF_SWITCHES.items():
        value = draft.get(switch)
        if value is True or (value is None and switch in SWITCHED_ON_BY_DEFAULT):
            targets += matrices
    alpha = draft.get("lora_alpha")
    lora = {
        "r": rank,
        "lora_alpha": alpha if isinstance(alpha, (int, float)) else 16,
        "target_modules": targets,
    }
    draft.put("training.lora", lora, "lora_r")
    draft.take("training.lora.lora_dropout", "lora_dropout")
    draft.put("training.lora.lora_alpha", lora["lora_alpha"], "lora_alpha")


def _read_batches(draft: ConfigDraft) -> None:
    """The batch of a device, and how many of them make a step."""
    micro, whole = draft.get("train.micro_batch_size"), draft.get("train.global_batch_size")
    devices = draft.get("devices")
    draft.put("training.per_device_train_batch_size", micro, "train.micro_batch_size")
    if type(devices) is not int or devices < 1:
        return
    nodes = draft.get("num_nodes")
    count = devices * (nodes if type(nodes) is int and nodes > 0 else 1)
    draft.put("training.devices", count, "devices")
    if type(micro) is int and type(whole) is int and micro > 0:
        steps = max(1, whole // (micro * count))
        draft.put("training.gradient_accumulation_steps", steps, "train.global_batch_size")
