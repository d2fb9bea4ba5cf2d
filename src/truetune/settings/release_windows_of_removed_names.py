"""The table of when names were removed: the last release seen to take each, and the first seen
without it.

Read from the packages' own sources: TRL and LLaMA-Factory at each of their tags, transformers from its releases 4.30.2,
4.36.2, 4.41.2, 4.45.2, 4.46.3, 4.56.2, 4.57.6, 5.0.0, 5.2.0, 5.10.0 and 5.17.0. Where a class of TRL lost a name before
another, the later one counts. Between the two releases nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class RemovalWindow(NamedTuple):
    """Until when a name was taken."""

    last: str
    gone: str

    def are_both_releases_consecutive(self) -> bool:
        """Do the two releases follow each other? Of transformers not every release was read."""
        return self not in BETWEEN_NOT_READ

    def describe_since_when_name_is_gone(self, package: str) -> str:
        """Since which release the name is gone, as a phrase, as far as is known."""
        return (
            f"in {package} {self.gone} and later"
            if self.are_both_releases_consecutive()
            else f"since a {package} after {self.last}"
        )

    def describe_until_when_name_is_valid(self, package: str) -> str:
        """Up to which release the name is right (valid), as a phrase, as far as is known."""
        return (
            f"before {package} {self.gone}"
            if self.are_both_releases_consecutive()
            else f"up to {package} {self.last}"
        )


BETWEEN_NOT_READ = frozenset(
    (
        RemovalWindow("4.30.2", "4.36.2"),
        RemovalWindow("4.46.3", "4.56.2"),
        RemovalWindow("4.56.2", "4.57.6"),
        RemovalWindow("5.0.0", "5.2.0"),
        RemovalWindow("5.10.0", "5.17.0"),
    )
)
"""Releases of transformers between which others came out"""


def _windows_by_name(groups: Mapping[RemovalWindow, Iterable[str]]) -> dict[str, RemovalWindow]:
    """Name -> its removal window, from groups of names by window."""
    return {name: taken for taken, names in groups.items() for name in names}


REMOVAL_WINDOWS: Mapping[str, Mapping[str, RemovalWindow]] = {
    "transformers": _windows_by_name({
        RemovalWindow("4.46.3", "4.56.2"): ("evaluation_strategy", "dispatch_batches", "split_batches"),
        RemovalWindow("4.30.2", "4.36.2"): ("sharded_ddp", "xpu_backend"),
        RemovalWindow("4.56.2", "4.57.6"): ("use_ipex",),
        RemovalWindow("4.57.6", "5.0.0"): (
            "per_gpu_train_batch_size", "per_gpu_eval_batch_size", "use_legacy_prediction_loop",
            "overwrite_output_dir", "save_safetensors", "no_cuda", "use_mps_device", "jit_mode_eval", "past_index",
            "fp16_backend", "fp16_opt_level", "half_precision_backend", "adafactor", "tpu_num_cores",
            "tpu_metrics_debug", "fsdp_min_num_params", "fsdp_transformer_layer_cls_to_wrap", "push_to_hub_model_id",
            "push_to_hub_organization", "push_to_hub_token", "include_inputs_for_metrics",
            "include_tokens_per_second", "ray_scope", "torchdynamo", "mp_parameters", "tokenizer",
        ),
        RemovalWindow("5.0.0", "5.2.0"): ("group_by_length",),
        RemovalWindow("5.10.0", "5.17.0"): ("warmup_ratio", "logging_dir"),
    }),
    "trl": _windows_by_name({
        RemovalWindow("0.19.1", "0.20.0"): ("max_seq_length",),
        RemovalWindow("0.13.0", "0.14.0"): ("max_target_length",),
        RemovalWindow("0.16.1", "0.17.0"): ("use_num_logits_to_keep",),
        RemovalWindow("0.17.0", "0.18.0"): ("num_of_sequences", "chars_per_token", "dataset_batch_size", "use_liger"),
        RemovalWindow("0.26.2", "0.27.0"): ("torch_dtype", "is_encoder_decoder"),
        RemovalWindow("0.27.2", "0.28.0"): ("use_liger_loss",),
        RemovalWindow("0.28.0", "0.29.0"): (
            "max_prompt_length", "max_completion_length", "ref_model_init_kwargs", "label_pad_token_id",
            "padding_value", "rpo_alpha", "force_use_ref_model", "reference_free", "use_logits_to_keep",
            "model_adapter_name", "ref_adapter_name", "base_model_attribute_name", "tools",
        ),
        RemovalWindow("1.1.0", "1.2.0"): ("generate_during_eval",),
    }),
    "axolotl": {},
    "llama-factory": _windows_by_name({
        RemovalWindow("0.7.1", "0.8.0"): ("dpo_beta", "dpo_ftx", "dpo_loss", "orpo_beta"),
        RemovalWindow("0.7.0", "0.7.1"): ("name_module_trainable", "num_layer_trainable"),
        RemovalWindow("0.8.2", "0.8.3"): ("reserved_label_len",),
        RemovalWindow("0.5.3", "0.6.0"): ("sft_packing",),
    }),
}  # fmt: skip
"""Stack -> a name of an earlier release -> until when"""


MOVED_TO_CONFIG = RemovalWindow("0.12.2", "0.13.0")
"""Until when TRL's trainers took these arguments themselves; then their configurations do"""
ARGUMENTS_MOVED_TO_CONFIG: Mapping[str, frozenset[str]] = {
    "trl.SFTTrainer": frozenset((
        "dataset_text_field", "packing", "max_seq_length", "infinite", "num_of_sequences", "chars_per_token",
        "dataset_num_proc", "dataset_batch_size", "neftune_noise_alpha", "model_init_kwargs", "dataset_kwargs",
        "eval_packing",
    )),
    "trl.DPOTrainer": frozenset((
        "beta", "label_smoothing", "loss_type", "label_pad_token_id", "padding_value", "truncation_mode",
        "max_length", "max_prompt_length", "max_target_length", "is_encoder_decoder", "disable_dropout",
        "generate_during_eval", "precompute_ref_log_probs", "dataset_num_proc", "model_init_kwargs",
        "ref_model_init_kwargs", "model_adapter_name", "ref_adapter_name", "reference_free", "force_use_ref_model",
    )),
}  # fmt: skip
"""Trainer -> what moved to its configuration. `tokenizer`, gone in 0.16, is not among them: it is still written out of
habit, and says nothing of the release that a script was tried with."""
PAD_MASKED_BY_ID = RemovalWindow("0.16.0", "0.16.1")
"""Until when SFTTrainer of TRL took transformers' collator, which masks labels that equal the pad id"""
SECOND_ADAPTER_HARMLESS = RemovalWindow("0.26.2", "0.27.0")
"""Until when TRL's trainers left a second adapter out (SFT), or merged the first before (DPO); then it is an error"""


def first_release_of_major(release: str) -> str:
    """The first release of the same major number: before it, defaults are not taken to be the same."""
    return f"{release.partition('.')[0]}.0"
