"""Advises what to write instead of a setting that truetune does not have.

Asked in this order, each only where the one before knows nothing: the name at another place of ours (`learning_rate`
stands under `training`), the name that another stack gives to it, a slip of the pen, an argument of transformers'
TrainingArguments (`trainer`), and at last the few settings whose names share a word. A slip comes after the names of
other stacks, for those are right as they stand; it is told only for what is much alike.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from pydantic import BaseModel

from truetune.parsing.input_limits import RESULT
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.settings.run_spec import Encoding, Learn, RunSpec, Watch
from truetune.settings.training_settings import Lora, Training

SETTING_GROUPS: Mapping[tuple[str, ...], type[BaseModel]] = {
    (): RunSpec,
    ("training",): Training,
    ("training", "lora"): Lora,
    ("learn",): Learn,
    ("encode",): Encoding,
    ("watch",): Watch,
}
"""Settings that hold settings, by their place; where one name is at two places, the first counts"""
FIELD_OF_OTHER_NAME: Mapping[str, str] = {
    **dict.fromkeys(("train_data", "dataset", "datasets", "train_file", "train_files", "train_dataset"), "data"),
    **dict.fromkeys(("data_path", "data_files", "dataset_path", "dataset_name", "training_data", "train_path"), "data"),
    **dict.fromkeys(("valid_data", "val_data", "validation_data", "validation_file", "eval_dataset"), "eval_data"),
    **dict.fromkeys(("test_data", "test_file", "eval_file", "val_file", "test_datasets", "eval_path"), "eval_data"),
    **dict.fromkeys(("base_model", "model_name_or_path", "model_name", "model_id", "pretrained_model"), "model"),
    **dict.fromkeys(("model_path", "base", "pretrained_model_name_or_path", "checkpoint"), "model"),
    **dict.fromkeys(("tokenizer_name", "tokenizer_config", "tokenizer_path", "tokenizer_name_or_path"), "tokenizer"),
    **dict.fromkeys(("chat_template", "chat_template_path", "chat_template_jinja", "prompt_template"), "template"),
    **dict.fromkeys(("max_seq_length", "max_seq_len", "sequence_len", "seq_length", "seq_len"), "max_length"),
    **dict.fromkeys(("cutoff_len", "model_max_length", "block_size", "context_length", "max_tokens"), "max_length"),
    **dict.fromkeys(("chat_template_kwargs", "template_args"), "template_kwargs"),
    **dict.fromkeys(("columns", "column_mapping", "field_mapping", "column_map"), "map"),
    **dict.fromkeys(("dataset_format", "data_format"), "format"),
    **dict.fromkeys(("append_eos_token", "add_eos", "add_eos_token"), "append_eos"),
    **dict.fromkeys(("response_template", "response_part", "completion_marker"), "response_marker"),
    **dict.fromkeys(("lr", "learningrate", "max_lr", "peak_lr", "base_lr"), "training.learning_rate"),
    **dict.fromkeys(("num_epochs", "epochs", "epoch", "n_epochs", "train_epochs"), "training.num_train_epochs"),
    **dict.fromkeys(("steps", "num_steps", "num_train_steps", "max_iters", "max_train_steps"), "training.max_steps"),
    **dict.fromkeys(("batch_size", "micro_batch_size", "train_batch_size", "per_device_batch_size", "bs"),
                    "training.per_device_train_batch_size"),
    **dict.fromkeys(("eval_batch_size", "val_batch_size"), "training.per_device_eval_batch_size"),
    **dict.fromkeys(("grad_accum", "gradient_accumulation", "accumulation_steps", "grad_accumulation_steps",
                     "grad_accum_steps"), "training.gradient_accumulation_steps"),
    **dict.fromkeys(("optimizer", "optimiser"), "training.optim"),
    **dict.fromkeys(("lr_scheduler", "scheduler", "lr_schedule", "schedule"), "training.lr_scheduler_type"),
    **dict.fromkeys(("warmup", "num_warmup_steps"), "training.warmup_steps"),
    **dict.fromkeys(("wd",), "training.weight_decay"),
    **dict.fromkeys(("grad_clip", "gradient_clipping", "clip_grad_norm", "max_norm"), "training.max_grad_norm"),
    **dict.fromkeys(("torch_dtype", "precision", "compute_dtype"), "training.dtype"),
    **dict.fromkeys(("grad_checkpointing", "activation_checkpointing", "use_gradient_checkpointing"),
                    "training.gradient_checkpointing"),
    **dict.fromkeys(("attention_implementation", "attention", "flash_attn", "attn"), "training.attn_implementation"),
    **dict.fromkeys(("out", "output", "out_dir", "save_dir", "output_path", "outputs"), "training.output_dir"),
    **dict.fromkeys(("val_set_size", "validation_split", "test_size", "eval_split", "val_split", "val_ratio"),
                    "training.val_size"),
    **dict.fromkeys(("stage", "task", "rl", "training_method", "loss"), "training.method"),
    **dict.fromkeys(("pref_beta", "dpo_beta", "rl_beta", "orpo_alpha"), "training.beta"),
    **dict.fromkeys(("pref_loss", "dpo_loss_type"), "training.loss_type"),
    **dict.fromkeys(("ref_model", "reference_model", "ref_model_name_or_path"), "training.reference"),
    **dict.fromkeys(("kto_chosen_weight", "kto_desirable_weight"), "training.desirable_weight"),
    **dict.fromkeys(("kto_rejected_weight", "kto_undesirable_weight"), "training.undesirable_weight"),
    **dict.fromkeys(("num_gpus", "gpus", "n_gpus", "nproc_per_node", "num_processes", "world_size"),
                    "training.devices"),
    **dict.fromkeys(("adapter_path", "adapter_name_or_path", "lora_model_dir", "lora_path"), "training.adapter"),
    **dict.fromkeys(("zero_stage", "deepspeed"), "training.deepspeed_stage"),
    **dict.fromkeys(("train_on_prompt", "train_on_input"), "training.train_on_inputs"),
    **dict.fromkeys(("eval_every", "eval_interval", "evaluate_every"), "training.eval_steps"),
    **dict.fromkeys(("save_every", "save_interval", "checkpoint_every"), "training.save_steps"),
    **dict.fromkeys(("log_every", "log_interval", "logging_interval"), "training.logging_steps"),
    **dict.fromkeys(("evaluation_strategy",), "training.eval_strategy"),
    **dict.fromkeys(("resume", "resume_from", "auto_resume_from_checkpoints"), "training.resume_from_checkpoint"),
    **dict.fromkeys(("tokenized_path", "dataset_prepared_path"), "training.prepared_path"),
    **dict.fromkeys(("enable_liger_kernel", "liger", "liger_kernel"), "training.use_liger_kernel"),
    **dict.fromkeys(("lora_r", "lora_rank", "rank", "lora_dim"), "training.lora.r"),
    **dict.fromkeys(("dpo_padding_free",), "training.padding_free"),
    **dict.fromkeys(("use_reentrant_gc",), "training.use_reentrant"),
    **dict.fromkeys(("alpha",), "training.lora.lora_alpha"),
    **dict.fromkeys(("dropout",), "training.lora.lora_dropout"),
    **dict.fromkeys(("lora_target", "lora_target_modules", "targets", "target"), "training.lora.target_modules"),
    "lora_target_parameters": "training.lora.target_parameters",
    **dict.fromkeys(("lora_modules_to_save", "additional_target"), "training.lora.modules_to_save"),
    **dict.fromkeys(("peft_use_rslora", "rslora"), "training.lora.use_rslora"),
    **dict.fromkeys(("peft_use_dora", "dora"), "training.lora.use_dora"),
    **dict.fromkeys(("peft_init_lora_weights",), "training.lora.init_lora_weights"),
    **dict.fromkeys(("mask_prompt", "mask_inputs", "assistant_only", "train_on_responses_only", "loss_on"),
                    "learn.what"),
    **dict.fromkeys(("truncation", "truncate", "excess_length_strategy"), "encode.overflow"),
    **dict.fromkeys(("eval_prompts", "sample_prompts", "num_prompts"), "watch.prompts"),
}  # fmt: skip
"""Other names -> our place, where the value means the same, or has to be rewritten by somebody who knows it"""
LORA_LINE = "training: {lora: {r: 16}}"
LINES: Mapping[str, str] = {
    **dict.fromkeys(("use_lora", "use_peft", "peft", "lora", "enable_lora", "peft_config", "lora_config"), LORA_LINE),
    **dict.fromkeys(("finetuning_type", "peft_type", "adapter_type", "finetune_type"), LORA_LINE),
    **dict.fromkeys(("qlora", "use_qlora"), "training: {load_in: 4, lora: {r: 16}}"),
    **dict.fromkeys(("load_in_4bit", "use_4bit", "quantization", "quantization_bit", "bnb_4bit"),
                    "training: {load_in: 4}"),
    **dict.fromkeys(("load_in_8bit", "use_8bit"), "training: {load_in: 8}"),
    **dict.fromkeys(("lora_target_linear",), "training: {lora: {target_modules: all-linear}}"),
    **dict.fromkeys(("packing", "sample_packing", "neat_packing", "pack", "pack_to_max_length"),
                    "encode: {packing: best-fit}"),
    **dict.fromkeys(("flash_attention", "use_flash_attention", "use_flash_attention_2", "use_flash_attn"),
                    "training: {attn_implementation: flash_attention_2}"),
    **dict.fromkeys(("mixed_precision", "amp"), "training: {bf16: true}"),
    **dict.fromkeys(("wandb", "wandb_project", "use_wandb"), "trainer: {report_to: wandb}"),
    **dict.fromkeys(("logger", "logging"), "trainer: {report_to: tensorboard}"),
    **dict.fromkeys(("random_seed", "manual_seed"), "trainer: {seed: 1}"),
    **dict.fromkeys(("num_workers", "dataloader_workers"), "trainer: {dataloader_num_workers: 2}"),
    **dict.fromkeys(("early_stopping", "early_stopping_patience", "sampling", "generate_during_eval"),
                    "watch: {stop_on: error}"),
    **dict.fromkeys(("skip_rehearsal", "rehearse", "dry_run", "sanity_check"), "rehearsal: false"),
    **dict.fromkeys(("ignore_errors", "skip_errors", "skip_bad_rows"), "encode: {on_error: skip}"),
}  # fmt: skip
"""Switches and groups of other stacks -> what is written here"""
VALUES: Mapping[tuple[str, str], str] = {
    ("adapter", "lora"): LORA_LINE,
    ("adapter", "qlora"): "training: {load_in: 4, lora: {r: 16}}",
    ("finetuning_type", "qlora"): "training: {load_in: 4, lora: {r: 16}}",
    ("mixed_precision", "fp16"): "training: {fp16: true}",
    ("precision", "bf16"): "training: {bf16: true}",
    ("precision", "fp16"): "training: {fp16: true}",
}
"""(name, value) -> what is written here"""
NOT_NEEDED: Mapping[str, str] = {
    **dict.fromkeys(("pretokenize", "pre_tokenize", "pretokenized", "tokenize", "preprocess", "preprocessing"),
                    "the rows are always encoded before the first step; truetune encode does it ahead of time"),
    **dict.fromkeys(("dataset_num_proc", "preprocessing_num_workers", "num_proc", "dataset_processes"),
                    "the rows are encoded by all cores; truetune encode has --jobs"),
    **dict.fromkeys(("overwrite_cache", "overwrite_output_dir", "use_cache", "load_from_cache_file"),
                    "what is encoded is used again only where data, tokenizer and settings are the same"),
    **dict.fromkeys(("special_tokens_map", "pad_token", "pad_token_id", "eos_token"),
                    "pads are masked by position, and a pad token that ends no turn is chosen"),
    **dict.fromkeys(("trust_remote_code",), "code of a model's repository is never run"),
    **dict.fromkeys(("shuffle_data", "shuffle_seed", "seed_data"), "rows are always shuffled (trainer: {seed: 1})"),
    **dict.fromkeys(("do_train", "do_eval"), "truetune train trains, and evaluates where there are held-out rows"),
    **dict.fromkeys(("system_prompt", "system", "default_system", "system_message"),
                    "a system prompt is the first message of each row"),
}  # fmt: skip
"""What needs no setting -> why"""
ALIKE = 0.75
"""difflib's ratio from which a name is a slip: `max_lenght` 0.9, `tokeniser` 0.89; `packages` of `packing` is 0.67"""
ALIKE_ELSEWHERE = 0.8
"""The same for a name at another place, or of another stack: there are ten times as many that it could be"""
SHOWN = 5
"""Names in one message"""


class Setting(NamedTuple):
    """A setting of ours, by its place."""

    place: tuple[str, ...]

    @property
    def name(self) -> str:
        """The last part of the setting's place, `r` of `training.lora.r`."""
        return self.place[-1]

    def as_one_line_yaml(self, value: str) -> str:
        """The setting with a value as YAML in one line: `training: {lora: {r: 16}}`."""
        *groups, name = self.place
        return "".join(f"{group}: {{" for group in groups) + f"{name}: {value}" + "}" * len(groups)


def advise_unknown_setting(place: Sequence[str], value: Any) -> str:
    """What to write instead of a setting that truetune does not have, as a clause: `write training:
    {lora: {r: 16}}`.

    Args:
        place: the names that lead to it, from the outermost.
        value: what it was given.
    """
    name = str(place[-1]).lower().replace("-", "_")
    inside = tuple(place[:-1])
    return (
        _advise_right_place_for_setting(name, inside, value)
        or _advise_for_name_of_other_stack(name, value)
        or _advise_misspelt_name(name, inside)
        or _advise_trainer_argument(name, value)
        or _name_similar_or_first_settings(name, inside)
    )


@cache
def all_settings() -> tuple[Setting, ...]:
    """All settings of ours, those that hold settings left out."""
    return tuple(
        Setting((*place, name))
        for place, part in SETTING_GROUPS.items()
        for name in part.model_fields
        if (*place, name) not in SETTING_GROUPS and (*place, name) != ("training", "other")
    )


def _advise_right_place_for_setting(name: str, inside: tuple[str, ...], value: Any) -> str:
    """Advice to write the setting of that name at its own place (`learning_rate` under `training`);
    empty if there is none.
    """
    if (name, str(value).lower()) in VALUES or (name in LINES and not isinstance(value, dict)):
        return ""  # `packing: true` is encode.packing, and training's is that of other stacks
    places = [setting for setting in all_settings() if setting.name == name]
    places += [
        Setting(place)
        for place in SETTING_GROUPS
        if place and place[-1] == name and isinstance(value, dict)
    ]
    return next(
        (
            f"write {setting.as_one_line_yaml(_as_short_yaml(value))}"
            for setting in places
            if setting.place[:-1] != inside
        ),
        "",
    )


def _advise_for_name_of_other_stack(name: str, value: Any) -> str:
    """Advice for a name of another stack: truetune's setting for it, or to remove it; empty for any
    other name.
    """
    if name in NOT_NEEDED:
        return f"remove it: {NOT_NEEDED[name]}"
    line = VALUES.get((name, str(value).lower())) or LINES.get(name)
    if line is not None:
        off = value is False or (isinstance(value, str) and value.lower() in ("full", "none", "no"))
        return f"remove it: it is off without {line}" if off else f"write {line}"
    if name not in FIELD_OF_OTHER_NAME:
        return ""
    setting = Setting(tuple(FIELD_OF_OTHER_NAME[name].split(".")))
    return f"write {setting.as_one_line_yaml(_as_short_yaml(value))}"


def _advise_misspelt_name(name: str, inside: tuple[str, ...]) -> str:
    """`did you mean X?` for a misspelt name, of the names at the same place first, then of all;
    empty if none is near.
    """
    here = [setting.name for setting in all_settings() if setting.place[:-1] == inside]
    here += [place[-1] for place in SETTING_GROUPS if place and place[:-1] == inside]
    near = difflib.get_close_matches(name, here, n=1, cutoff=ALIKE)
    if near:
        return f"did you mean {near[0]}?"
    elsewhere = {setting.name: ".".join(setting.place) for setting in all_settings()}
    pool = list(dict.fromkeys((*elsewhere, *FIELD_OF_OTHER_NAME, *LINES, *NOT_NEEDED)))
    for found in difflib.get_close_matches(name, pool, n=1, cutoff=ALIKE_ELSEWHERE):
        return (
            f"did you mean {elsewhere[found]}?"
            if found in elsewhere
            else _advise_for_name_of_other_stack(found, None)
        )
    return ""


def _advise_trainer_argument(name: str, value: Any) -> str:
    """Advice to write an argument of transformers' TrainingArguments under `trainer`; empty for any
    other name.
    """
    return (
        f"write trainer: {{{name}: {_as_short_yaml(value)}}}"
        if name in _recorded_training_arguments_names()
        else ""
    )


def _name_similar_or_first_settings(name: str, inside: tuple[str, ...]) -> str:
    """The settings that share a word with the name, otherwise the first ones of its place."""
    words = {word for word in re.split(r"[_.\W]+", name) if len(word) > 2}
    sharing = [
        ".".join(setting.place)
        for setting in all_settings()
        if words & set(setting.name.split("_"))
    ]
    if sharing:
        return f"alike are {_join_names(sharing)}; docs/reference/settings.md lists all"
    here = [setting.name for setting in all_settings() if setting.place[:-1] == inside]
    where = f"{'.'.join(inside)} has" if inside else "there are"
    return f"{where} {_join_names(here)}; docs/reference/settings.md lists all"


def _join_names(names: Sequence[str]) -> str:
    """The first names with commas between them, and how many more there are."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _as_short_yaml(value: Any) -> str:
    """A plain value as YAML; `...` for what would not fit in a line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:g}" if isinstance(value, float) else str(value)
    if (
        isinstance(value, dict)
        and 0 < len(value) <= SHOWN
        and all(_as_short_yaml(item) != "..." for item in value.values())
    ):
        return (
            "{" + ", ".join(f"{key}: {_as_short_yaml(item)}" for key, item in value.items()) + "}"
        )
    fits = isinstance(value, str) and re.fullmatch(r"[\w./@-]{1,60}", value)
    return str(value) if fits else "..."


@cache
def _recorded_training_arguments_names() -> frozenset[str]:
    """Names of transformers' TrainingArguments, as the recorded release has them."""
    body = files("truetune.settings").joinpath("stacks", "transformers.json").read_bytes()
    return frozenset(parse_json(body, RESULT)["classes"]["TrainingArguments"])
