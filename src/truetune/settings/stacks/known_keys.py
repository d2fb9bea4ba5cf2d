"""Loads the keys and defaults that a stack's release knows, and names that earlier releases had.

Keys and defaults lie in JSON files beside this module, written from the installed packages by
`python -m tests.settings.stack_facts`, because the packages themselves need not be installed where truetune runs. The
names of earlier releases are a table by hand: no package says in one place what it called a key before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, cast

from truetune.parsing.input_limits import RESULT
from truetune.parsing.parse_json_within_limits import parse_json


@dataclass(frozen=True, slots=True)
class KnownKeys:
    """The keys and defaults that one package knows at one release."""

    release: str
    classes: Mapping[str, Mapping[str, Any]]
    """Class -> key -> default; None where it is required, or nothing"""


@cache
def load_known_keys(package: str) -> KnownKeys:
    """The keys and defaults of transformers, trl, peft, axolotl or llama-factory at one release."""
    raw = parse_json(files(__package__).joinpath(f"{package}.json").read_bytes(), RESULT)
    return KnownKeys(raw["release"], raw["classes"])


@cache
def load_first_releases_of_defaults() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    """Package -> class of arguments -> key -> the first release that was read with the default of today."""
    raw = parse_json(files(__package__).joinpath("steady_defaults.json").read_bytes(), RESULT)
    return cast("Mapping[str, Mapping[str, Mapping[str, str]]]", raw)


RENAMED_KEYS: Mapping[str, Mapping[str, str | None]] = {
    "transformers": {
        "evaluation_strategy": "eval_strategy",
        "warmup_ratio": "warmup_steps",
        "tokenizer": "processing_class",
        "per_gpu_train_batch_size": "per_device_train_batch_size",
        "per_gpu_eval_batch_size": "per_device_eval_batch_size",
        "group_by_length": "train_sampling_strategy",
        "torch_dtype": "dtype",
        "use_legacy_prediction_loop": None,
        "overwrite_output_dir": None,
        "save_safetensors": None,
        "logging_dir": None,
        "no_cuda": "use_cpu",
        "use_ipex": None,
        "use_mps_device": None,
        "jit_mode_eval": None,
        "past_index": None,
        "fp16_backend": None,
        "fp16_opt_level": None,
        "half_precision_backend": None,
        "sharded_ddp": "fsdp",
        "adafactor": "optim",
        "xpu_backend": "ddp_backend",
        "tpu_num_cores": None,
        "tpu_metrics_debug": "debug",
        "dispatch_batches": "accelerator_config",
        "split_batches": "accelerator_config",
        "fsdp_min_num_params": "fsdp_config",
        "fsdp_transformer_layer_cls_to_wrap": "fsdp_config",
        "push_to_hub_model_id": "hub_model_id",
        "push_to_hub_organization": "hub_model_id",
        "push_to_hub_token": "hub_token",
        "include_inputs_for_metrics": "include_for_metrics",
        "include_tokens_per_second": None,
        "ray_scope": None,
        "torchdynamo": "torch_compile",
        "ddp_timeout_seconds": "ddp_timeout",
        "mp_parameters": None,
    },
    "trl": {
        "max_seq_length": "max_length",
        "max_prompt_length": None,
        "max_completion_length": None,
        "max_target_length": None,
        "num_of_sequences": None,
        "chars_per_token": None,
        "dataset_batch_size": None,
        "use_liger": "use_liger_kernel",
        "use_liger_loss": "use_liger_kernel",
        "ref_model_init_kwargs": "model_init_kwargs",
        "generate_during_eval": None,
        "is_encoder_decoder": None,
        "label_pad_token_id": None,
        "padding_value": "pad_token",
        "rpo_alpha": "loss_weights",
        "force_use_ref_model": None,
        "reference_free": None,
        "use_logits_to_keep": None,
        "use_num_logits_to_keep": None,
        "model_adapter_name": None,
        "ref_adapter_name": None,
        "base_model_attribute_name": None,
        "tools": None,
        "wandb_log_unique_prompts": "log_unique_prompts",
    },
    "axolotl": {
        "max_packed_sequence_len": "sequence_len",
        "rope_scaling": "overrides_of_model_config",
        "noisy_embedding_alpha": "neftune_noise_alpha",
        "dpo_beta": "rl_beta",
        "evaluation_strategy": "eval_strategy",
        "eval_table_size": "generate_samples",
        "eval_max_new_tokens": "generation_max_new_tokens",
        "dataset_processes": "dataset_num_proc",
        "gc_steps": "torch_empty_cache_steps",
        "pretrain_multipack_buffer_size": "streaming_multipack_buffer_size",
        "xformers_attention": "attn_implementation",
        "sdp_attention": "attn_implementation",
        "flex_attention": "attn_implementation",
        "flash_attention": "attn_implementation",
        "sage_attention": "attn_implementation",
        "eager_attention": "attn_implementation",
        "fsdp_final_state_dict_type": "fsdp_config.final_state_dict_type",
        "fsdp": "fsdp_config",
        "dpo_use_logits_to_keep": None,
        "dpo_generate_during_eval": None,
        "dpo_norm_loss": None,
        "rpo_alpha": None,
        "s2_attention": None,
        "flash_attn_rms_norm": None,
        "flash_attn_cross_entropy": None,
        "flash_attn_fuse_qkv": None,
        "flash_attn_fuse_mlp": None,
        "early_stopping": "early_stopping_patience",
        "hf_use_auth_token": None,
        "push_dataset_to_hub": None,
    },
    "llama-factory": {
        "evaluation_strategy": "eval_strategy",
        "dataset_cutoff_len": "cutoff_len",
        "dpo_beta": "pref_beta",
        "dpo_ftx": "pref_ftx",
        "dpo_loss": "pref_loss",
        "orpo_beta": "pref_beta",
        "kto_beta": "pref_beta",
        "name_module_trainable": "freeze_trainable_modules",
        "num_layer_trainable": "freeze_trainable_layers",
        "export_quantization_method": None,
        "reserved_label_len": None,
        "sft_packing": "packing",
        "dpo_label_pad_token_id": None,
    },
}
"""Package -> a key that an earlier release knew -> its name today; None: it is gone."""
DEPRECATED_KEYS = frozenset(RENAMED_KEYS["axolotl"])
"""Old names that the stack still takes, with a warning or an error of its own"""
KEYS_THAT_STOP_AXOLOTL = frozenset(
    (
        "max_packed_sequence_len",
        "rope_scaling",
        "dpo_use_logits_to_keep",
        "dpo_generate_during_eval",
    )
    + ("dpo_norm_loss", "rpo_alpha", "s2_attention", "flash_attn_rms_norm")
)
"""Old keys of Axolotl at which it stops; others it drops, or takes"""
