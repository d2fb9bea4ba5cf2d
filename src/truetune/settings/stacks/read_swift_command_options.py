"""Reads the options of ms-swift's commands: `swift sft`, `swift pt` and `swift rlhf`.

They are those of transformers' TrainingArguments, with other defaults, and words of its own for the model, LoRA and
quantization. Names of release 4 (`tuner_type`) and of release 3 (`train_type`, earlier `sft_type`) are read alike.
"""

from __future__ import annotations

from typing import Any

from truetune.settings.config import Config
from truetune.settings.located_document import LocatedDocument
from truetune.settings.stacks.config_draft import (
    ConfigDraft,
    draft_of_document,
    is_switched_on,
    list_of_names,
)
from truetune.settings.stacks.read_shared_stack_arguments import read_sharding

SWIFT_RELEASE = "3.9"
DEFAULTS: dict[str, Any] = {
    "per_device_train_batch_size": 1,
    "per_device_eval_batch_size": 1,
    "gradient_checkpointing": True,
    "num_train_epochs": 3.0,
    "weight_decay": 0.1,
    "lr_scheduler_type": "cosine",
    "warmup_ratio": 0.05,
    "optim": "adamw_torch_fused",
}
METHOD_OF_RLHF_TYPE = {
    "dpo": "dpo",
    "kto": "kto",
    "orpo": "orpo",
    "cpo": "cpo",
    "rm": "reward",
    "ppo": "ppo",
    "grpo": "grpo",
}
TUNER_KEYS = ("tuner_type", "train_type", "sft_type")
ZERO_STAGES = {
    "zero0": 0,
    "zero1": 1,
    "zero2": 2,
    "zero2_offload": 2,
    "zero3": 3,
    "zero3_offload": 3,
}
"""Names of its own DeepSpeed files"""
EVALUATION_SETS = ("val_dataset", "cached_val_dataset")
ATTENTION_NAMES = {
    "flash_attn": "flash_attention_2",
    "flash_attention_2": "flash_attention_2",
    "eager": "eager",
}


def read_swift_options(document: LocatedDocument, command: str = "sft") -> Config:
    """The options of one command. Raises SpecError for a value that a field does not take."""
    draft = draft_of_document(document, "ms-swift", SWIFT_RELEASE, DEFAULTS)
    draft.same()
    _read_training_method(draft, command)
    model = draft.folder(draft.get("model", "model_id_or_path"))
    draft.put("model", model, "model", "model_id_or_path")
    draft.put("tokenizer", model, "model", "model_id_or_path")
    tuner = str(draft.get(*TUNER_KEYS) or "lora")
    if tuner in ("lora", "longlora", "adalora"):
        _read_lora(draft)
    elif tuner != "full":
        draft.notes.append(f"{tuner} is read as if all weights were trained")
    rate = draft.get("learning_rate")
    draft.put(
        "training.learning_rate", rate or (1e-5 if tuner == "full" else 1e-4), "learning_rate"
    )
    bits = draft.get("quant_bits", "quantization_bit")
    draft.put(
        "training.load_in", bits if bits in (4, 8) else None, "quant_bits", "quantization_bit"
    )
    _read_precision(draft)
    draft.put(
        "training.gradient_checkpointing",
        is_switched_on(draft.get("gradient_checkpointing")),
        "gradient_checkpointing",
    )
    attention = ATTENTION_NAMES.get(str(draft.get("attn_impl")))
    draft.put("training.attn_implementation", attention, "attn_impl")
    _read_evaluation_interval(draft)
    _read_deepspeed(draft)
    limit = draft.get("max_length")
    limit = limit if isinstance(limit, int) else None
    draft.put("max_length", limit, "max_length")
    draft.notes.append("a command of ms-swift: its rows are not read; name them beside it")
    return draft.config(draft.values.keys() | DEFAULTS.keys(), limit, ())


def _read_training_method(draft: ConfigDraft, command: str) -> None:
    """Read the method of training, by the command and `rlhf_type`."""
    kind = str(draft.get("rlhf_type")) if command == "rlhf" else ""
    method = "pretrain" if command == "pt" else METHOD_OF_RLHF_TYPE.get(kind, "sft")
    draft.put("training.method", method, "rlhf_type")


def _read_lora(draft: ConfigDraft) -> None:
    """Read the settings of LoRA."""
    targets = draft.get("target_modules") or "all-linear"
    if isinstance(targets, list):
        targets = list_of_names(targets)
    lora: dict[str, Any] = {
        "r": draft.get("lora_rank") or 8,
        "lora_alpha": draft.get("lora_alpha") or 32,
        "lora_dropout": draft.get("lora_dropout") or 0.05,
        "target_modules": targets,
    }
    whole = draft.get("modules_to_save")
    if whole is not None:
        lora["modules_to_save"] = list_of_names(whole)
    draft.put("training.lora", lora, "lora_rank", "target_modules")


def _read_precision(draft: ConfigDraft) -> None:
    """Read the precision: `torch_dtype` is what the weights are loaded in, and the training follows
    it.
    """
    dtype = draft.get("torch_dtype", "dtype")
    draft.put("training.dtype", dtype, "torch_dtype", "dtype")
    if draft.get("bf16") is None and draft.get("fp16") is None:
        draft.put("training.bf16", dtype in ("bfloat16", None), "torch_dtype")
        draft.put("training.fp16", dtype == "float16", "torch_dtype")


def _read_evaluation_interval(draft: ConfigDraft) -> None:
    """Read when it evaluates: if rows are held out and no strategy is named, as often as it saves;
    otherwise never.
    """
    has_rows = draft.get("split_dataset_ratio") or draft.get(*EVALUATION_SETS)
    if draft.get("eval_strategy") is None and has_rows:
        strategy = draft.get("save_strategy") or "steps"
        draft.put("training.eval_strategy", strategy, "save_strategy")


def _read_deepspeed(draft: ConfigDraft) -> None:
    """Read DeepSpeed's settings, by a name or a file."""
    stage = ZERO_STAGES.get(str(draft.get("deepspeed")))
    if stage is None:
        read_sharding(draft)
        return
    draft.put("training.deepspeed_stage", stage, "deepspeed")
    if str(draft.get("deepspeed")).endswith("_offload"):
        device = {"device": "cpu"}
        draft.put("training.other", {"offload_optimizer": device}, "deepspeed")
