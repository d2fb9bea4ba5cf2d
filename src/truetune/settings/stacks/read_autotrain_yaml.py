"""Reads the YAML of `autotrain --config`: what is trained by which method, with the settings in a table `params`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from truetune.settings.config import Config
from truetune.settings.located_document import LocatedDocument
from truetune.settings.stacks.config_draft import ConfigDraft, is_switched_on, list_of_names
from truetune.settings.stacks.read_nested_rl_settings import (
    draft_with_dotted_names,
    set_field_to_number,
)

AUTOTRAIN_RELEASE = "0.8"
AUTOTRAIN_KEYS = frozenset((
    "task", "base_model", "project_name", "log", "backend", "data", "params", "hub", "args",
))  # fmt: skip
METHOD_OF_TASK = {
    "llm-sft": "sft",
    "llm:sft": "sft",
    "llm": "sft",
    "llm-orpo": "orpo",
    "llm:orpo": "orpo",
    "llm-dpo": "dpo",
    "llm:dpo": "dpo",
    "llm-reward": "reward",
    "llm:reward": "reward",
    "llm-generic": "pretrain",
    "llm:generic": "pretrain",
}
NUMBERS = {
    "lr": "learning_rate",
    "epochs": "num_train_epochs",
    "batch_size": "per_device_train_batch_size",
    "gradient_accumulation": "gradient_accumulation_steps",
    "warmup_ratio": "warmup_ratio",
    "weight_decay": "weight_decay",
    "max_grad_norm": "max_grad_norm",
}
"""AutoTrain's name -> that of the field"""
DEFAULTS: dict[str, Any] = {
    "params.lr": 3e-5,
    "params.lora_r": 16,
    "params.lora_alpha": 32,
    "params.target_modules": "all-linear",
}
BITS = {"int4": 4, "int8": 8}


def autotrain_keys() -> frozenset[str]:
    """The keys at the top of AutoTrain's files."""
    return AUTOTRAIN_KEYS


def is_autotrain(value: Mapping[Any, Any]) -> bool:
    """Are these settings of AutoTrain for a language model: a task of its own, and tables of rows and settings?"""
    return str(value.get("task")) in METHOD_OF_TASK and isinstance(value.get("params"), Mapping)


def read_autotrain_config(document: LocatedDocument) -> Config:
    """The settings of AutoTrain in a file. Raises SpecError."""
    draft = draft_with_dotted_names(document, "autotrain", AUTOTRAIN_RELEASE, DEFAULTS)
    draft.put("training.method", METHOD_OF_TASK[str(draft.get("task"))], "task")
    draft.take("model", "base_model", made=str)
    for key, field in NUMBERS.items():
        set_field_to_number(draft, f"training.{field}", f"params.{key}")
    draft.take("training.optim", "params.optimizer", made=str)
    draft.take("training.lr_scheduler_type", "params.scheduler", made=str)
    draft.put(
        "training.load_in", BITS.get(str(draft.get("params.quantization"))), "params.quantization"
    )
    precision = draft.get("params.mixed_precision")
    if precision in ("bf16", "fp16"):
        draft.put(f"training.{precision}", True, "params.mixed_precision")
    _read_lora(draft)
    # `block_size` is where texts are cut; `model_max_length` is what the tokenizer is told.
    limit = draft.get("params.block_size")
    limit = limit if type(limit) is int and limit > 0 else None
    draft.put("max_length", limit, "params.block_size")
    draft.notes.append("settings of AutoTrain: its rows are not read; name them beside it")
    return draft.make_config({*draft.values, *AUTOTRAIN_KEYS}, limit, ())


def _read_lora(draft: ConfigDraft) -> None:
    """The adapter, where `peft` is on."""
    if not is_switched_on(draft.get("params.peft")):
        return
    targets = draft.get("params.target_modules")
    lora = {
        "r": draft.get("params.lora_r"),
        "lora_alpha": draft.get("params.lora_alpha"),
        "target_modules": targets if targets == "all-linear" else list_of_names(targets),
    }
    draft.put("training.lora", lora, "params.peft")
    draft.take("training.lora.lora_alpha", "params.lora_alpha")
