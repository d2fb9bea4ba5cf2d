"""Reads the options of OpenRLHF's commands: `python -m openrlhf.cli.train_ppo_ray --pretrain X`.

Releases up to 0.9 call them by one word (`n_samples_per_prompt`), those since 0.10 by their group
(`rollout.n_samples_per_prompt`); both are known by the one word here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from truetune.parsing.shell_commands import CommandFile
from truetune.settings.config import Config, SettingLocation
from truetune.settings.located_document import LocatedDocument
from truetune.settings.stacks.config_draft import ConfigDraft, draft_of_document
from truetune.settings.stacks.datasets_of_config import local_dataset_files
from truetune.settings.stacks.known_keys import load_known_keys
from truetune.settings.stacks.options_of_commands import (
    may_variable_hold_options,
    options_as_located_settings,
)
from truetune.settings.suggest_spelling import find_misspelt_key

OPENRLHF_RELEASE = "0.11"
PROGRAM = re.compile(r"(?:openrlhf\.cli\.|(?:.*/)?openrlhf/cli/)(?P<program>train_\w+?)(?:\.py)?")
METHOD_OF_PROGRAM = {
    "train_sft": "sft",
    "train_dpo": "dpo",
    "train_kto": "kto",
    "train_rm": "reward",
    "train_ppo_ray": "grpo",
    "train_ppo": "ppo",
}
NAME_OF_GROUPED_OPTION: Mapping[str, str] = {
    "actor.model_name_or_path": "pretrain",
    "model.model_name_or_path": "pretrain",
    "rollout.n_samples_per_prompt": "n_samples_per_prompt",
    "rollout.temperature": "temperature",
    "rollout.top_p": "top_p",
    "rollout.max_new_tokens": "generate_max_len",
    "rollout.batch_size": "rollout_batch_size",
    "train.batch_size": "train_batch_size",
    "train.num_episodes": "num_episodes",
    "algo.kl.init_coef": "init_kl_coef",
    "actor.entropy_coef": "entropy_loss_coef",
    "actor.eps_clip": "eps_clip",
    "algo.advantage.estimator": "advantage_estimator",
    "actor.adam.lr": "actor_learning_rate",
    "critic.adam.lr": "critic_learning_rate",
    "adam.lr": "learning_rate",
    "ds.lora.rank": "lora_rank",
    "ds.lora.alpha": "lora_alpha",
    "ds.lora.target_modules": "target_modules",
    "ds.lora.dropout": "lora_dropout",
    "data.max_len": "max_len",
    "data.apply_chat_template": "apply_chat_template",
    "data.input_template": "input_template",
    "data.input_key": "input_key",
    "data.prompt_dataset": "prompt_data",
    "data.dataset": "dataset",
    "ckpt.output_dir": "save_path",
    "algo.dynamic_filtering_enable": "dynamic_filtering",
    "algo.dynamic_filtering_range": "dynamic_filtering_reward_range",
}
"""Option of 0.10 and later -> its earlier name"""
RL_DEFAULTS: dict[str, Any] = {
    "actor_learning_rate": 1e-6,
    "n_samples_per_prompt": 1,
    "advantage_estimator": "gae",
    "temperature": 1.0,
    "lora_rank": 0,
}
TUNING_DEFAULTS: dict[str, Any] = {"learning_rate": 5e-6, "max_epochs": 2, "lora_rank": 0}
"""Of train_sft; those of train_dpo differ in the rate alone"""


def configs_of_openrlhf_commands(file: CommandFile) -> Iterator[Config]:
    """The settings of each command of OpenRLHF that trains. Raises SpecError."""
    for command in file.commands:
        for number, word in enumerate(command.words):
            match = PROGRAM.fullmatch(word)
            method = METHOD_OF_PROGRAM.get(match["program"]) if match is not None else None
            if method is not None:
                words = command.words[number + 1 :]
                document = options_as_located_settings(file, command, words, NAME_OF_GROUPED_OPTION)
                config = _read_options(document, method)
                yield replace(config, own_keys=may_variable_hold_options(words))
                break


def _read_options(document: LocatedDocument, method: str) -> Config:
    """The options of one command. Raises SpecError for a value that a field does not take."""
    samples_answers = method in ("grpo", "ppo")
    defaults = RL_DEFAULTS if samples_answers else TUNING_DEFAULTS
    draft = draft_of_document(document, "openrlhf", OPENRLHF_RELEASE, defaults)
    if samples_answers and draft.get("advantage_estimator") == "gae":
        method = "ppo"
    draft.put("training.method", method, "advantage_estimator")
    draft.take("model", "pretrain", made=str)
    rate = "actor_learning_rate" if samples_answers else "learning_rate"
    # The rate of train_dpo is another one by default, and that of train_sft is of no use there.
    if samples_answers or method == "sft" or rate in draft.values:
        draft.take("training.learning_rate", rate)
    draft.take("training.warmup_ratio", "lr_warmup_ratio")
    draft.take("training.num_train_epochs", "num_episodes" if samples_answers else "max_epochs")
    _read_lora(draft)
    limit = draft.get("max_len") if not samples_answers else None
    draft.notes.append("a command of OpenRLHF: its rows are not read; name them beside it")
    config = draft.make_config(draft.values.keys(), limit if isinstance(limit, int) else None, ())
    config = replace(config, unknown=(*config.unknown, *_misspelt_options(draft)))
    named = draft.get("prompt_data", "dataset")
    files = local_dataset_files(draft, named) if isinstance(named, str) else ()
    return replace(config, row_files=files)


def _misspelt_options(draft: ConfigDraft) -> list[SettingLocation]:
    """The options of groups that are misspelt; those of one word differ between releases."""
    known = load_known_keys("openrlhf").classes["names"]
    return [
        draft.where[name]
        for name in draft.values
        if "." in name
        and name in draft.where
        and name not in known
        and find_misspelt_key(name, known)
    ]


def _read_lora(draft: ConfigDraft) -> None:
    """The adapter: its rank is 0 where all weights are trained."""
    rank, alpha = draft.get("lora_rank"), draft.get("lora_alpha")
    if isinstance(rank, int) and rank > 0:
        lora = {
            "r": rank,
            "lora_alpha": alpha if isinstance(alpha, (int, float)) else 16,
            "target_modules": "all-linear",
        }
        draft.put("training.lora", lora, "lora_rank")
