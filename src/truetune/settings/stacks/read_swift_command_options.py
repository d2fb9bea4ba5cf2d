"""Reads the options of ms-swift's commands: `swift sft`, `swift pt` and `swift rlhf`, and the YAML that holds them.

They are those of transformers' TrainingArguments, with other defaults, and words of its own for the model, LoRA and
quantization. Names of release 4 (`tuner_type`) and of release 3 (`train_type`, earlier `sft_type`) are read alike.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from truetune.settings.config import Config
from truetune.settings.located_document import LocatedDocument
from truetune.settings.stacks.config_draft import (
    ConfigDraft,
    draft_of_document,
    is_switched_on,
    list_of_names,
)
from truetune.settings.stacks.datasets_of_config import (
    ConfigDataset,
    local_dataset_files,
    set_datasets_of_draft,
)
from truetune.settings.stacks.known_keys import load_known_keys
from truetune.settings.stacks.read_shared_stack_arguments import read_sharding
from truetune.settings.suggest_spelling import find_misspelt_key

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
OWN_KEYS = frozenset((
    "model", "model_type", "model_revision", "task_type", "torch_dtype", "attn_impl", "new_special_tokens",
    "num_labels", "rope_scaling", "max_model_len", "tuner_backend", "tuner_type", "train_type", "sft_type", "adapters",
    "external_plugins", "custom_register_path", "model_kwargs", "load_args", "packing", "packing_length",
    "packing_strategy", "lazy_tokenize", "use_hf", "dataset", "val_dataset", "cached_dataset", "cached_val_dataset",
    "split_dataset_ratio", "data_seed", "dataset_num_proc", "load_from_cache_file", "dataset_shuffle",
    "val_dataset_shuffle", "streaming", "interleave_prob", "stopping_strategy", "shuffle_buffer_size", "columns",
    "strict", "model_name", "model_author", "custom_dataset_info", "template", "system", "max_length",
    "truncation_strategy", "max_pixels", "agent_template", "norm_bbox", "use_chat_template", "padding_side",
    "padding_free", "loss_scale", "sequence_parallel_size", "response_prefix", "enable_thinking", "quant_method",
    "quant_bits", "bnb_4bit_compute_dtype", "bnb_4bit_quant_type", "bnb_4bit_use_double_quant", "freeze_parameters",
    "freeze_parameters_ratio", "trainable_parameters", "freeze_llm", "freeze_vit", "freeze_aligner", "target_modules",
    "target_regex", "modules_to_save", "lora_rank", "lora_alpha", "lora_dropout", "lora_bias", "lora_dtype",
    "lorap_lr_ratio", "use_rslora", "use_dora", "init_weights", "rlhf_type", "ref_model", "ref_adapters", "beta",
    "rpo_alpha", "reward_funcs", "reward_model", "create_checkpoint_symlink", "add_version", "zero_hpz_partition_size",
    "ENV",
))  # fmt: skip
"""Of ms-swift 3.9 and 4.5, beside those of TrainingArguments and of 4.6"""
SAMPLED_SET = re.compile(r"(?P<name>.+?)(?:#(?P<rows>\d+))?", re.S)
"""`rows.jsonl#500`: 500 rows of a data set, fewer or more than it has"""
EVALUATION_SETS = ("val_dataset", "cached_val_dataset")
ATTENTION_NAMES = {
    "flash_attn": "flash_attention_2",
    "flash_attention_2": "flash_attention_2",
    "eager": "eager",
}


def swift_keys() -> frozenset[str]:
    """The keys that a YAML of ms-swift may hold."""
    return (
        OWN_KEYS
        | load_known_keys("transformers").classes["TrainingArguments"].keys()
        | load_known_keys("ms-swift").classes["names"].keys()
    )


def _known_or_of_another_release(draft: ConfigDraft) -> frozenset[str]:
    """All keys that are set but for those that are misspelt: others may be of a release that is not known."""
    known = swift_keys()
    misspelt = {
        key
        for key in draft.values.keys() - known - DEFAULTS.keys()
        if find_misspelt_key(key, known) is not None
    }
    return frozenset((draft.values.keys() | DEFAULTS.keys()) - misspelt)


def read_swift_config(document: LocatedDocument) -> Config:
    """The YAML that `swift sft` and its kin take instead of options. Raises SpecError."""
    draft = _draft_of_swift_options(document, "rlhf" if "rlhf_type" in document.value else "sft")
    for key, field in (("dataset", "data"), ("val_dataset", "eval_data")):
        set_datasets_of_draft(
            draft,
            [
                ConfigDataset(name, local_dataset_files(draft, name))
                for name, _ in swift_datasets_with_row_counts(draft.get(key))
            ],
            key,
            field=field,
        )
    return draft.make_config(_known_or_of_another_release(draft), _length_limit(draft), ())


def swift_datasets_with_row_counts(value: Any) -> list[tuple[str, int | None]]:
    """The data sets that a setting names, and how many rows are drawn of each; None: all of them."""
    names = value if isinstance(value, list) else [value] if isinstance(value, str) else []
    found = [SAMPLED_SET.fullmatch(name) for name in names if isinstance(name, str)]
    return [
        (one["name"], int(one["rows"]) if one["rows"] else None) for one in found if one is not None
    ]


def read_swift_options(document: LocatedDocument, command: str = "sft") -> Config:
    """The options of one command. Raises SpecError for a value that a field does not take."""
    draft = _draft_of_swift_options(document, command)
    draft.notes.append("a command of ms-swift: its rows are not read; name them beside it")
    config = draft.make_config(_known_or_of_another_release(draft), _length_limit(draft), ())
    files = [
        local_dataset_files(draft, name)
        for name, _ in swift_datasets_with_row_counts(draft.get("dataset"))
    ]
    return replace(
        config, row_files=tuple(path for paths in files for path in paths) if all(files) else ()
    )


def _length_limit(draft: ConfigDraft) -> int | None:
    """The longest example in tokens, where it is set."""
    limit = draft.get("max_length")
    return limit if isinstance(limit, int) else None


def _draft_of_swift_options(document: LocatedDocument, command: str) -> ConfigDraft:
    """The draft with all that the options of a command set, but the data sets."""
    draft = draft_of_document(document, "ms-swift", SWIFT_RELEASE, DEFAULTS)
    draft.take_keys_of_same_name()
    _read_training_method(draft, command)
    model = draft.local_folder_or_name(draft.get("model", "model_id_or_path"))
    draft.put("model", model, "model", "model_id_or_path")
    draft.put("tokenizer", model, "model", "model_id_or_path")
    tuner = str(draft.get(*TUNER_KEYS) or "lora")
    if tuner in ("lora", "longlora", "adalora"):
        _read_lora(draft)
    elif tuner != "full":
        draft.notes.append(f"{tuner} is read as if all weights were trained")
    draft.take(
        "training.adapter", "adapters", made=lambda value: ",".join(list_of_names(value)) or None
    )
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
    draft.put("max_length", _length_limit(draft), "max_length")
    return draft


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
    for name in ("modules_to_save", "target_parameters"):
        if draft.get(name) is not None:
            lora[name] = list_of_names(draft.get(name))
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
