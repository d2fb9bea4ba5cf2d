"""Reads the YAML settings of Axolotl.

Keys and defaults are those of Axolotl's own schema (`axolotl.json`, written from its package), so that a key which a
release dropped is known as such. Where a default depends on another key or on the machine (`bf16: auto`,
`eval_sample_packing`), the reading follows Axolotl's code, and a note says what was assumed.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

from truetune.settings.config import Config
from truetune.settings.located_document import LocatedDocument
from truetune.settings.stacks.config_draft import ConfigDraft, draft_of_document, is_switched_on
from truetune.settings.stacks.known_keys import RENAMED_KEYS, load_known_keys
from truetune.settings.stacks.read_axolotl_datasets import read_axolotl_datasets
from truetune.settings.stacks.read_shared_stack_arguments import (
    device_map_name,
    find_local_template_file,
    flatten_token_indices,
    join_loss_types,
    read_gradient_checkpointing,
    read_sharding,
)
from truetune.settings.stacks.read_trainer_arguments import read_load_in_bits

FIELD_KEYS = {
    "learning_rate": "learning_rate", "lr_scheduler_type": "lr_scheduler", "warmup_steps": "warmup_steps",
    "warmup_ratio": "warmup_ratio", "num_train_epochs": "num_epochs", "max_steps": "max_steps",
    "per_device_train_batch_size": "micro_batch_size", "gradient_accumulation_steps": "gradient_accumulation_steps",
    "optim": "optimizer", "weight_decay": "weight_decay", "max_grad_norm": "max_grad_norm",
    "use_liger_kernel": "use_liger_kernel", "packing": "sample_packing", "train_on_inputs": "train_on_inputs",
    "skip_prepare_dataset": "skip_prepare_dataset", "prepared_path": "dataset_prepared_path",
    "remove_unused_columns": "remove_unused_columns", "save_total_limit": "save_total_limit",
    "logging_steps": "logging_steps", "logging_nan_inf_filter": "logging_nan_inf_filter",
    "load_best_model_at_end": "load_best_model_at_end", "metric_for_best_model": "metric_for_best_model",
    "greater_is_better": "greater_is_better", "output_dir": "output_dir", "val_size": "val_set_size",
    "desirable_weight": "kto_desirable_weight", "undesirable_weight": "kto_undesirable_weight",
    "precompute_ref_log_probs": "precompute_ref_log_probs", "adapter": "lora_model_dir",
    "eval_accumulation_steps": "eval_accumulation_steps", "padding_free": "dpo_padding_free",
}  # fmt: skip
"""Field of Training -> Axolotl's key, where the value is the same"""
LORA_KEYS = {
    "r": "lora_r", "lora_alpha": "lora_alpha", "lora_dropout": "lora_dropout",
    "target_parameters": "lora_target_parameters", "modules_to_save": "lora_modules_to_save",
    "use_rslora": "peft_use_rslora", "use_dora": "peft_use_dora",
    "init_lora_weights": "peft_init_lora_weights",
}  # fmt: skip
ATTENTION_SWITCHES = {
    "flash_attention": "flash_attention_2", "sdp_attention": "sdpa", "flex_attention": "flex_attention",
    "eager_attention": "eager", "xformers_attention": "xformers", "sage_attention": "sage",
}  # fmt: skip
"""Switches of earlier releases -> attn_implementation"""
METHOD_OF_RL = {
    "dpo": "dpo", "ipo": "dpo", "gdpo": "grpo", "grpo": "grpo", "ebft": "grpo", "orpo": "orpo", "kto": "kto",
    "simpo": "cpo",
}  # fmt: skip
AUDIT_PLUGIN_KEY = "truetune_audit"
"""The settings of `truetune.axolotl.AuditPlugin`: a key that only a YAML with plugins may hold"""
TRAINER_DEFAULTS = {"max_grad_norm": 1.0, "save_total_limit": 4}
"""What is taken where the schema says nothing"""


@cache
def axolotl_keys() -> frozenset[str]:
    """All keys that an Axolotl YAML may hold, those of its plugins and earlier releases among them."""
    classes = load_known_keys("axolotl").classes
    return frozenset(
        (
            *classes["AxolotlInputConfig"],
            *classes["built in"],
            *classes["plugins"],
            AUDIT_PLUGIN_KEY,
            *RENAMED_KEYS["axolotl"],
        )
    )


def read_axolotl_config(document: LocatedDocument) -> Config:
    """The settings in an Axolotl YAML as a Config."""
    classes = load_known_keys("axolotl").classes
    defaults = {
        **TRAINER_DEFAULTS,
        **{k: v for k, v in classes["AxolotlInputConfig"].items() if v is not None},
    }
    draft = draft_of_document(document, "axolotl", load_known_keys("axolotl").release, defaults)
    for field, key in FIELD_KEYS.items():
        draft.take(f"training.{field}", key)
    _read_training_method(draft)
    _read_evaluation_batch_size(draft)
    _read_model_tokenizer_and_template(draft)
    _read_precision(draft)
    if draft.get("adapter") in ("lora", "qlora"):
        _read_lora(draft)
    _read_evaluation_saving_packing_shuffling(draft)
    _read_special_and_added_tokens(draft)
    read_sharding(draft)
    _read_gradient_checkpointing(draft)
    read_axolotl_datasets(draft, document)
    limit = draft.get("sequence_len")
    if "sequence_len" in draft.values:
        draft.put("max_length", limit, "sequence_len")
    known = {
        *classes["AxolotlInputConfig"],
        *classes["built in"],
        *((*classes["plugins"], AUDIT_PLUGIN_KEY) if draft.get("plugins") else ()),
    }
    draft.used.discard("plugins")
    return draft.make_config(known, limit if isinstance(limit, int) else None, ("axolotl",))


def _read_training_method(draft: ConfigDraft) -> None:
    """Read the method of training (SFT, DPO, ...)."""
    rl = draft.get("rl")
    method = METHOD_OF_RL.get(str(rl), "sft")
    if draft.get("reward_model") or draft.get("process_reward_model"):
        draft.put("training.method", "reward", "reward_model", "process_reward_model")
    elif draft.get("pretraining_dataset"):
        draft.put("training.method", "pretrain", "pretraining_dataset")
    else:
        draft.put("training.method", method, "rl")
    if rl is not None and str(rl) not in METHOD_OF_RL:
        draft.notes.append(f"rl: {rl} is no method that truetune knows; read as sft")
    if rl in ("ipo", "simpo"):
        draft.put("training.loss_type", rl, "rl")
    elif draft.get("dpo_loss_type"):
        draft.take("training.loss_type", "dpo_loss_type", made=join_loss_types)
    if method != "sft":
        nested = draft.table("trl").get("beta")
        draft.take("training.beta", *(("orpo_alpha",) if rl == "orpo" else ()), "rl_beta")
        if nested is not None:
            draft.put("training.beta", nested, "trl")
        draft.used.discard("trl")


def _read_evaluation_batch_size(draft: ConfigDraft) -> None:
    """Read the batch size of evaluations, and note a `batch_size` that does nothing."""
    draft.take("training.per_device_eval_batch_size", "eval_batch_size", "micro_batch_size")
    if draft.get("batch_size") is not None:
        draft.used.discard("batch_size")
        draft.notes.append(
            "batch_size does nothing: gradient_accumulation_steps has a default of 1, which decides"
        )


def _read_model_tokenizer_and_template(draft: ConfigDraft) -> None:
    """Read the model, its tokenizer and template, and how it is loaded."""
    base = draft.local_folder_or_name(draft.get("base_model"))
    own = draft.get("tokenizer_config")
    draft.put("model", base, "base_model")
    draft.put(
        "tokenizer",
        draft.local_folder_or_name(own) or base,
        *(("tokenizer_config",) if own else ()),
        "base_model",
    )
    for key, name in ATTENTION_SWITCHES.items():
        if is_switched_on(draft.get(key)):
            draft.put("training.attn_implementation", name, key)
    if draft.get("attn_implementation") is not None:
        draft.take("training.attn_implementation", "attn_implementation")
    draft.take("training.device_map", "device_map", made=device_map_name)
    resume = (
        "resume_from_checkpoint"
        if draft.values.get("resume_from_checkpoint")
        else "auto_resume_from_checkpoints"
    )
    draft.take("training.resume_from_checkpoint", resume)
    template = draft.get("chat_template")
    jinja = draft.get("chat_template_jinja")
    if isinstance(jinja, str) and template in (None, "jinja"):
        path = find_local_template_file(draft, jinja)
        draft.put("template", path, "chat_template_jinja")
        if path is None:
            draft.notes.append("chat_template_jinja: a template written into the file is not read")
        draft.own_prompt = path is None
    elif template not in (None, "tokenizer_default"):
        draft.own_prompt = True
        draft.notes.append(
            f"chat_template: {template} is Axolotl's own; truetune looks at the tokenizer's"
            " template instead"
        )
    draft.take(
        "template_kwargs",
        "chat_template_kwargs",
        made=lambda value: value if isinstance(value, dict) else None,
    )
    draft.used.discard("chat_template")


def _read_precision(draft: ConfigDraft) -> None:
    """Read the dtype that the weights are loaded in, and the precision of the training."""
    bf16, fp16 = draft.get("bf16"), draft.get("fp16")
    if bf16 == "auto":
        bf16 = not is_switched_on(fp16)
        draft.notes.append(
            "bf16: auto is read as on a GPU that has it" if bf16 else "bf16: auto gives way to fp16"
        )
    # `bf16: full` loads bfloat16 weights and trains them without autocast.
    is_pure = bf16 == "full"
    is_bfloat16 = is_pure or is_switched_on(bf16) or is_switched_on(draft.get("bfloat16"))
    draft.put("training.bf16", is_bfloat16 and not is_pure, "bf16", "bfloat16")
    draft.put("training.fp16", is_switched_on(fp16) and not is_bfloat16, "fp16")
    # Weights of 8 bits have their other parts in float16.
    is_8bit = is_switched_on(draft.get("load_in_8bit"))
    is_float16 = is_8bit or is_switched_on(fp16) or is_switched_on(draft.get("float16"))
    dtype = "float32"
    if is_float16:
        dtype = "float16"
    if is_bfloat16:
        dtype = "bfloat16"
    draft.put("training.dtype", dtype, "bf16", "bfloat16", "fp16", "float16")
    read_load_in_bits(draft)


def _read_lora(draft: ConfigDraft) -> None:
    """Read the settings of LoRA."""
    draft.put("training.lora", {}, "adapter")
    for field, key in LORA_KEYS.items():
        draft.take(f"training.lora.{field}", key)
    draft.take("training.lora.target_modules", "lora_target_modules", made=_target_module_names)
    if is_switched_on(draft.get("lora_target_linear")):
        draft.put("training.lora.target_modules", "all-linear", "lora_target_linear")
    draft.take(
        "training.lora.trainable_token_indices",
        "peft_trainable_token_indices",
        made=flatten_token_indices,
    )


def _target_module_names(value: Any) -> Any:
    """The names of target modules; `all-linear` where the list holds that alone."""
    return (
        value[0] if isinstance(value, list) and value in (["all-linear"], ["all_linear"]) else value
    )


def _read_evaluation_saving_packing_shuffling(draft: ConfigDraft) -> None:
    """Read when it evaluates and saves, how it packs, and whether it shuffles."""
    has_evaluation = bool(draft.get("val_set_size") or draft.get("test_datasets"))
    _read_event_interval(draft, "eval", "no", is_off=not has_evaluation)
    _read_event_interval(draft, "save", "epoch", is_off=False)
    packing, eval_packing = draft.get("sample_packing"), draft.get("eval_sample_packing")
    draft.put(
        "training.eval_packing",
        packing if eval_packing is None else eval_packing,
        "eval_sample_packing",
        "sample_packing",
    )
    if is_switched_on(packing):
        draft.put("training.packing_strategy", "multipack", "sample_packing")
        # Packed rows of training and plain rows of evaluation have different columns: Axolotl keeps them all.
        if eval_packing is False and draft.get("remove_unused_columns") is None:
            draft.put("training.remove_unused_columns", False)
    is_merged = is_switched_on(draft.get("shuffle_merged_datasets"))
    is_shuffled = is_merged or not is_switched_on(draft.get("curriculum_sampling"))
    draft.put("training.shuffle", is_shuffled, "shuffle_merged_datasets", "curriculum_sampling")


def _read_event_interval(
    draft: ConfigDraft, event: Literal["eval", "save"], default: str, *, is_off: bool
) -> None:
    """Read when it evaluates or saves: steps, a share of the run, each epoch, or not at all.

    Args:
        draft: of the config.
        event: begins the names of the keys, `eval_steps`.
        default: the strategy where no key says it.
        is_off: there is nothing to evaluate.
    """
    keys = (f"{event}s_per_epoch", f"{event}_steps", f"{event}_strategy")
    per_epoch, steps = draft.get(keys[0]), draft.values.get(keys[1])
    epochs = draft.get("num_epochs")
    are_numbers = isinstance(per_epoch, (int, float)) and isinstance(epochs, (int, float))
    # Axolotl writes it as a share of all steps, which is below 1 only for several in a run.
    if are_numbers and per_epoch and per_epoch * epochs > 1:
        steps = 1.0 / (per_epoch * epochs)
    strategy = draft.get(keys[2])
    if is_off or (event == "eval" and strategy == "no"):
        steps, strategy = None, "no"
    draft.put(f"training.{event}_strategy", "steps" if steps else strategy or default, *keys)
    draft.put(f"training.{event}_steps", steps or None, *keys[:2])


def _read_gradient_checkpointing(draft: ConfigDraft) -> None:
    """Read gradient checkpointing."""
    read_gradient_checkpointing(draft)
    used = bool(draft.get("gradient_checkpointing"))
    draft.put("training.gradient_checkpointing", used, "gradient_checkpointing")
    if used and draft.get("rl") is None and "training.use_reentrant" not in draft.fields:
        draft.put("training.use_reentrant", draft.fields.get("training.deepspeed_stage") == 3)


def _read_special_and_added_tokens(draft: ConfigDraft) -> None:
    """Read special and added tokens."""
    special = {
        key: value for key, value in draft.table("special_tokens").items() if isinstance(value, str)
    }
    draft.put("training.special_tokens", special or None, "special_tokens")
    more = draft.table("special_tokens").get("additional_special_tokens") or []
    tokens = draft.get("tokens") or []
    added = [
        token.get("content") if isinstance(token, dict) else token
        for token in [*_value_as_list(tokens), *_value_as_list(more)]
    ]
    draft.put(
        "training.added_tokens",
        [token for token in added if token] or None,
        "tokens",
        "special_tokens",
    )
    draft.take("training.resize_vocab", "resize_token_embeddings_to_32x")


def _value_as_list(value: Any) -> list[Any]:
    """The value, as a list of one where it is no list."""
    return value if isinstance(value, list) else [value]
