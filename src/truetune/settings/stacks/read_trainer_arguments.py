"""Reads the arguments of transformers, TRL and peft, whatever file or call they come from.

TRL's YAML, a call in a script and stacks that hand these arguments on are all read here, so that one default and one
rule of precedence (TRL switches bf16 on where fp16 is off) is written once.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from truetune.settings.release_pins import Pins
from truetune.settings.stacks.config_draft import UNKNOWN_VALUE, ConfigDraft, is_switched_on
from truetune.settings.stacks.known_keys import load_first_releases_of_defaults, load_known_keys
from truetune.settings.stacks.read_columns_of_local_dataset import columns_of_first_row
from truetune.settings.stacks.read_shared_stack_arguments import (
    device_map_name,
    join_loss_types,
    read_gradient_checkpointing,
    read_sharding,
    read_special_token_keys,
)
from truetune.trainers import TRAINERS
from truetune.trainers.trainer_fact_types import RowKind

METHOD_OF_CLASS = {
    "TrainingArguments": "sft", "Seq2SeqTrainingArguments": "sft", "SFTConfig": "sft", "DPOConfig": "dpo",
    "KTOConfig": "kto", "RewardConfig": "reward", "GRPOConfig": "grpo", "RLOOConfig": "grpo",
    "DistillationConfig": "sft", "ORPOConfig": "orpo", "CPOConfig": "cpo", "OnlineDPOConfig": "ppo",
    "GKDConfig": "sft",
}  # fmt: skip
"""Class of arguments -> method. Online DPO samples its answers, as PPO does, and compares no group"""
GENERATION_TAG = re.compile(r"\{%-?\s*generation\s*-?%\}")
TEMPLATE_FILES = ("chat_template.jinja", "tokenizer_config.json")
SHUFFLES_BY_STRATEGY = {"random": True, "group_by_length": True, "sequential": False}


def class_defaults(name: str) -> dict[str, Any]:
    """The keys and defaults of a class of arguments."""
    base = load_known_keys("transformers").classes["TrainingArguments"]
    return {
        **base,
        **load_known_keys("transformers").classes.get(name, {}),
        **load_known_keys("trl").classes.get(name, {}),
    }


def defaults_same_in_asked_releases(name: str, pins: Pins) -> dict[str, Any]:
    """The keys of a class of arguments whose defaults were the same in the releases that a program asks for.

    Source: `steady_defaults.json`, which `python -m tests.settings.steady_defaults` writes from the packages' sources.
    """
    of_trl = load_known_keys("trl").classes.get(name, {})
    table = load_first_releases_of_defaults()
    since_trl = table["trl"].get(name, {})
    classes = table["transformers"]
    since_transformers = {**classes["TrainingArguments"], **classes.get(name, {})}

    def is_steady(key: str) -> bool:
        """Does TRL give it today's default in the release that is asked for, and transformers, where TRL leaves it?"""
        if key in since_trl and pins.is_release_surely_before("trl", since_trl[key]):
            return False
        if key in of_trl:
            return key in since_trl
        since = since_transformers.get(key)
        return since is not None and not pins.is_release_surely_before("transformers", since)

    return {key: default for key, default in class_defaults(name).items() if is_steady(key)}


def read_class_of_arguments(draft: ConfigDraft, name: str) -> int | None:
    """Read the fields of a class of trainer arguments into the draft; returns the limit on an
    example's length.
    """
    draft.take_keys_of_same_name()
    beta = draft.get("beta")
    # Online DPO takes one beta for each epoch.
    if isinstance(beta, list):
        draft.put("training.beta", beta[0] if beta else None, "beta")
    draft.put("training.method", METHOD_OF_CLASS[name])
    of_trl = name in load_known_keys("trl").classes
    bf16, fp16 = draft.get("bf16"), draft.get("fp16")
    # Before TRL 0.19 bf16 had the default of transformers, False.
    if of_trl and "bf16" in draft.defaults and bf16 is None and fp16 is not UNKNOWN_VALUE:
        draft.put("training.bf16", not is_switched_on(fp16), "bf16")
    read_gradient_checkpointing(draft)
    read_sharding(draft)
    draft.take(
        "training.shuffle",
        "train_sampling_strategy",
        made=lambda value: SHUFFLES_BY_STRATEGY.get(str(value), True),
    )
    if (
        draft.get("eval_strategy", "evaluation_strategy") == "steps"
        and draft.get("eval_steps") is None
    ):
        draft.put("training.eval_steps", draft.get("logging_steps"))
    draft.take("training.eval_strategy", "eval_strategy", "evaluation_strategy")
    draft.take("training.loss_type", "loss_type", made=join_loss_types)
    read_special_token_keys(draft, "pad_token", "eos_token")
    if name == "SFTConfig":
        _read_sft_arguments(draft)
    _read_model_init_kwargs(draft, draft.table("model_init_kwargs"), "model_init_kwargs")
    return _read_length_limit(draft)


def _read_sft_arguments(draft: ConfigDraft) -> None:
    """Read the arguments of SFTConfig."""
    if draft.get("eval_packing") is None:
        draft.put("training.eval_packing", draft.get("packing"))
    draft.put(
        "training.skip_prepare_dataset",
        draft.table("dataset_kwargs").get("skip_prepare_dataset"),
        "dataset_kwargs",
    )
    draft.put("append_eos", True)
    draft.put("history", "single")


def read_trl_supervision(draft: ConfigDraft) -> None:
    """Read what TRL's SFTTrainer supervises, once the data are known: by default, what follows a
    prompt column, and every token of rows that have none.
    """
    found = columns_of_first_row(draft.fields.get("data", ()))
    text = draft.get("dataset_text_field")
    if isinstance(text, str) and text != "text" and text in found:
        draft.put("map", {"text": text}, "dataset_text_field")
    if is_switched_on(draft.get("assistant_only_loss")):
        draft.put("learn", {"what": "assistant"}, "assistant_only_loss")
        if template_has_generation_tags(
            draft.fields.get("tokenizer"), draft.fields.get("template")
        ):
            draft.put("mask_by", "generation-tags", "assistant_only_loss")
    elif found:
        kind: RowKind = "prompt-completion" if {"prompt", "completion"} <= found else "chat"
        decision = TRAINERS["trl"].decide_what_is_learned(
            kind, lambda name: _switch_value_or_none_if_unset(draft.get(name))
        )
        draft.put("learn", {"what": decision.learned}, "completion_only_loss")


def _switch_value_or_none_if_unset(value: Any) -> bool | None:
    """A switch as it is set; None where it is not."""
    return None if value is None else is_switched_on(value)


def template_has_generation_tags(tokenizer: str | None, template: str | None) -> bool:
    """Has the chat template `{% generation %}` tags?

    TRL puts a template of its own in the place of those that it knows and that have none, and stops at the others.

    Args:
        tokenizer: its folder; None where it is not known, or not on this machine.
        template: a file that is rendered instead of the tokenizer's template.
    """
    if template is not None:
        files = [Path(template)]
    else:
        files = [Path(tokenizer or "", name) for name in TEMPLATE_FILES if tokenizer]
    return any(
        GENERATION_TAG.search(file.read_text(encoding="utf-8", errors="replace"))
        for file in files
        if file.is_file()
    )


def _read_length_limit(draft: ConfigDraft) -> int | None:
    """Read the limit on an example's length, and return it."""
    value = draft.get("max_length", "max_seq_length")
    if draft.stack == "trl" and draft.values.get("max_length", 0) is None:
        draft.put("training.no_length_limit", True, "max_length")
    if value is UNKNOWN_VALUE:
        draft.put("training.open_length_limit", True, "max_length", "max_seq_length")
    if "max_length" in draft.values or "max_seq_length" in draft.values:
        draft.put("max_length", value, "max_length", "max_seq_length")
    try:
        return None if value is None or value is UNKNOWN_VALUE else int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _dtype_name(value: Any) -> str:
    """The name of a dtype without `torch.`."""
    return str(value).removeprefix("torch.")


def _read_model_init_kwargs(draft: ConfigDraft, given: Any, key: str) -> None:
    """Read the arguments that are passed on to `from_pretrained`."""
    for name, field in (
        ("attn_implementation", "attn_implementation"),
        ("dtype", "dtype"),
        ("torch_dtype", "dtype"),
    ):
        value = given.get(name)
        if value is not None and value is not UNKNOWN_VALUE:
            draft.put(f"training.{field}", _dtype_name(value), key)
    if given.get("device_map") is not None:
        draft.put("training.device_map", device_map_name(given["device_map"]), key)


def read_model_arguments(draft: ConfigDraft) -> None:
    """Read TRL's ModelConfig, or the arguments of `from_pretrained` by their own names."""
    draft.take("training.dtype", "dtype", "torch_dtype", made=_dtype_name)
    draft.take("training.attn_implementation", "attn_implementation")
    draft.take("training.device_map", "device_map", made=device_map_name)
    if "use_flash_attention_2" in draft.values and is_switched_on(
        draft.get("use_flash_attention_2")
    ):
        draft.put("training.attn_implementation", "flash_attention_2", "use_flash_attention_2")
    read_load_in_bits(draft)


def read_load_in_bits(draft: ConfigDraft) -> None:
    """Read `load_in_4bit` and `load_in_8bit`."""
    for bits in (8, 4):
        if is_switched_on(draft.get(f"load_in_{bits}bit")):
            draft.put("training.load_in", bits, f"load_in_{bits}bit")
