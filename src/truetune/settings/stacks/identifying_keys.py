"""Tells by its keys whether a settings file is that of one program, and of no other.

`batch_size`, `num_epochs`, `lora_r`, `dataset_name` are words that scripts choose for files of their own, and a program
that has a key of that name knows nothing of them. So a file is a program's only where several of its keys are that
program's alone. What does not show it by its keys can be proven by who reads it: see `readers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from truetune.settings.config import Stack
from truetune.settings.stacks import (
    read_autotrain_yaml,
    read_litgpt_yaml,
    read_llama_factory_settings,
    read_mergekit_yaml,
    read_nested_rl_settings,
    read_prime_rl_toml,
    read_torchtune_recipe,
    read_training_arguments_file,
    read_trl_yaml,
)
from truetune.settings.stacks.known_keys import load_known_keys
from truetune.settings.stacks.registry import readers_of_other_programs
from truetune.settings.suggest_spelling import find_misspelt_key

# At one, a single key that a script shares by chance makes it another program's file; at four, short files of settings
# (a model, a data set, a rate) are those of nobody.
MIN_SIGNS = 2
"""So many signs are no chance: one word may be"""
MIN_TRAINING_ARGUMENTS = 4
"""Keys of TrainingArguments in a file: fewer (`output_dir`, `learning_rate`, `seed`) are words of many scripts"""
COMMON_WORDS = frozenset((
    # the model, the device, the precision
    "model_type", "model_config", "model_kwargs", "tokenizer_config", "tokenizer_type", "device", "device_map", "dtype",
    "torch_dtype", "float16", "float32", "bfloat16", "quantization", "bnb_4bit_quant_type", "max_memory", "num_labels",
    "flash_attention", "special_tokens", "tokens", "chat_template", "eos_token", "pad_token", "is_encoder_decoder",
    "world_size", "tensor_parallel_size", "use_vllm", "vllm", "trl", "peft", "adapter", "plugins", "strict", "export",
    "recipe", "tools", "use_kernels", "image_size", "torch_compile_options", "ddp", "flash_attn",
    "adapter_name_or_path", "lora_rank", "lora_target",
    # the data
    "dataset_name", "dataset_config", "test_datasets", "shuffle_dataset", "test_split_size", "max_seq_length",
    "max_prompt_length", "max_prompt_len", "max_target_length", "truncation_mode", "label_pad_token_id",
    "padding_value", "max_samples", "cutoff_len", "val_size", "preprocessing_num_workers", "train_on_inputs",
    # the training
    "batch_size", "eval_batch_size", "num_epochs", "optimizer", "lr_scheduler", "early_stopping", "dataset",
    "early_stopping_patience", "evaluation_strategy", "group_by_length", "train_on_prompt", "eval_dataset",
    "alpha", "beta", "delta", "epsilon", "loss_type", "loss_weights", "label_smoothing", "entropy_coef", "rl", "gptq",
    "num_generations", "num_iterations", "max_completion_length", "reward_weights", "scale_rewards",
    "generation_kwargs", "generation_batch_size", "min_p", "max_new_tokens", "do_sample", "embedding_lr",
    # where a run is logged
    "use_wandb", "wandb_project", "wandb_entity", "wandb_name", "wandb_run_id", "wandb_mode", "wandb_watch",
    "wandb_log_model", "use_mlflow", "mlflow_tracking_uri", "mlflow_experiment_name", "use_tensorboard",
))  # fmt: skip
"""Keys that only one of these programs has, and many scripts too"""
LLAMA_FACTORY_SIGNS = frozenset((
    "stage", "finetuning_type", "template", "dataset", "eval_dataset", "dataset_dir", "cutoff_len", "export_dir",
    "infer_backend", "quantization_bit", "pref_loss", "pref_beta", "mask_history", "train_on_prompt",
))  # fmt: skip
"""Keys by which its files say what to train on, and how. Without one of them, a file that names its model in the same
way and shares other words (`lora_rank`, `preprocessing_num_workers`) is that of another program"""
TRL_TRAINERS = (
    "SFTConfig",
    "DPOConfig",
    "KTOConfig",
    "ORPOConfig",
    "CPOConfig",
    "RewardConfig",
    "GRPOConfig",
    "RLOOConfig",
)
"""Settings of TRL's trainers"""
TOLD_BY_MODEL = "ms-swift"
"""Its files call the model `model`, and those of TRL and Axolotl never do: its keys make none of theirs less telling"""
TOLD_BY_TABLES: Mapping[Stack, Callable[[Mapping[Any, Any]], bool]] = {
    "torchtune": read_torchtune_recipe.is_torchtune_recipe,
    "verl": read_nested_rl_settings.is_verl,
    "nemo-rl": read_nested_rl_settings.is_nemo_rl,
    "prime-rl": read_prime_rl_toml.is_prime_rl,
    "litgpt": read_litgpt_yaml.is_litgpt,
    "autotrain": read_autotrain_yaml.is_autotrain,
    "mergekit": read_mergekit_yaml.is_mergekit,
    "transformers": read_training_arguments_file.is_training_arguments,
}
"""Programs whose files are told by what is in their tables, and not by the names of these"""
TOLD_BY_COMMON_TABLES = (
    "verl",
    "nemo-rl",
    "prime-rl",
    "litgpt",
    "autotrain",
    "mergekit",
    "transformers",
)
"""Those whose tables have names that many files have (`model`, `data`, `trainer`)"""
MODEL_KEYS = frozenset(("template", "finetuning_type", "quantization_bit"))
"""Those that a server of such a model takes over too"""


def do_keys_identify_stack(stack: Stack, value: Mapping[object, object]) -> bool:
    """Do the keys of this file show that it is read by this program?"""
    given = {str(key) for key in value}
    if stack in TOLD_BY_TABLES:
        return TOLD_BY_TABLES[stack](value)
    if stack == "llama-factory":
        signs = given & LLAMA_FACTORY_SIGNS
        if not _keys_neither_known_nor_misspelt(
            given, read_llama_factory_settings.llama_factory_keys()
        ):
            return bool(signs)
        return len(signs) >= MIN_SIGNS and bool(signs - MODEL_KEYS)
    count = len(given & _exclusive_keys_by_stack()[stack]) + _does_name_model_and_rows_as_stack(
        stack, value
    )
    if stack == "trl":
        count += _are_several_keys_training_arguments(given) + _has_key_of_trl_trainer(given)
    return count >= MIN_SIGNS


def _are_several_keys_training_arguments(given: set[str]) -> bool:
    """Are several keys those of TrainingArguments, and all others known to TRL's commands as well?

    A script that parses files into TrainingArguments has words of its own beside them; a file without any is what
    `trl sft --config` and `trl dpo --config` take, and one sign.
    """
    of_the_trainer = given & frozenset(load_known_keys("transformers").classes["TrainingArguments"])
    return len(of_the_trainer) >= MIN_TRAINING_ARGUMENTS and not _keys_neither_known_nor_misspelt(
        given, read_trl_yaml.trl_keys()
    )


def _has_key_of_trl_trainer(given: set[str]) -> bool:
    """Do all keys belong to TRL's commands, and one (`packing`, `max_length`) to the settings of TRL's own trainers?

    One such key is a common word, and a file of `run_clm.py` names its model and rows by the same two keys. Where no
    key is foreign to TRL, it is one sign. `lora_r` and the like are none: scripts of all kinds have them.
    """
    classes = load_known_keys("trl").classes
    own = {key for name in TRL_TRAINERS for key in classes[name]} - frozenset(
        load_known_keys("transformers").classes["TrainingArguments"]
    )
    return bool(given & own) and not _keys_neither_known_nor_misspelt(
        given, read_trl_yaml.trl_keys()
    )


def _keys_neither_known_nor_misspelt(given: set[str], known: frozenset[str]) -> set[str]:
    """Keys that this program does not know, and that are no misspelling of one."""
    return {key for key in given - known if find_misspelt_key(key, known) is None}


@cache
def _exclusive_keys_by_stack() -> Mapping[Stack, frozenset[str]]:
    """The keys of a program that are no other's, and no common words."""
    base = frozenset(load_known_keys("transformers").classes["TrainingArguments"])
    known = {
        stack: reader.keys()
        for stack, reader in readers_of_other_programs().items()
        # Their words (`model`, `data`, `trainer`) make no key of another program less telling.
        if stack not in TOLD_BY_COMMON_TABLES
    }
    known["trl"] -= read_trl_yaml.trl_launcher_keys()
    return {
        stack: (
            keys
            - base
            - COMMON_WORDS
            - frozenset().union(
                *(known[other] for other in known if other not in (stack, TOLD_BY_MODEL))
            )
        )
        for stack, keys in known.items()
    }


def _does_name_model_and_rows_as_stack(stack: Stack, value: Mapping[object, object]) -> bool:
    """Does it name both the model and the rows as this program does? Together they are one sign."""
    if stack == "trl":
        rows = any(
            isinstance(value.get(key), str)
            for key in ("dataset_name", "dataset_mixture", "dataset_mixer")
        )
        return "model_name_or_path" in value and (
            rows or _is_list_of_tables_with_path(value.get("datasets"))
        )
    return (
        stack == "axolotl"
        and "base_model" in value
        and any(
            _is_list_of_tables_with_path(value.get(key)) or isinstance(value.get(key), str)
            for key in ("datasets", "pretraining_dataset")
        )
    )


def _is_list_of_tables_with_path(value: object) -> bool:
    """Is a value a list of dictionaries with a `path`, at least one?"""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, dict) and "path" in item for item in value)
    )
