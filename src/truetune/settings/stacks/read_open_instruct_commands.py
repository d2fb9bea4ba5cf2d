"""Reads the options of open-instruct's training commands: `accelerate launch open_instruct/finetune.py --use_lora`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from truetune.parsing.shell_commands import CommandFile
from truetune.settings.config import Config
from truetune.settings.stacks.config_draft import ConfigDraft, draft_of_document, is_switched_on
from truetune.settings.stacks.options_of_commands import (
    may_variable_hold_options,
    options_as_located_settings,
)
from truetune.settings.stacks.read_nested_rl_settings import set_field_to_number

OPEN_INSTRUCT_RELEASE = "main of 2025"
PROGRAM = re.compile(
    r"(?:(?:.*/)?open_instruct/|open_instruct\.)(?P<program>finetune|dpo_tune_cache|dpo_tune|reward_modeling)(?:\.py)?"
)
METHOD_OF_PROGRAM = {
    "finetune": "sft",
    "dpo_tune": "dpo",
    "dpo_tune_cache": "dpo",
    "reward_modeling": "reward",
}
NUMBERS = {
    "learning_rate": "learning_rate",
    "weight_decay": "weight_decay",
    "warmup_ratio": "warmup_ratio",
    "num_train_epochs": "num_train_epochs",
    "max_train_steps": "max_steps",
    "per_device_train_batch_size": "per_device_train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "clip_grad_norm": "max_grad_norm",
    "beta": "beta",
    "dpo_beta": "beta",
}
LORA_DEFAULTS: dict[str, Any] = {"lora_rank": 64, "lora_alpha": 16, "dpo_loss_type": "dpo"}


def configs_of_open_instruct_commands(file: CommandFile) -> Iterator[Config]:
    """The settings of each command of open-instruct that trains. Raises SpecError."""
    for command in file.commands:
        for number, word in enumerate(command.words):
            match = PROGRAM.fullmatch(word)
            if match is None:
                continue
            options = command.words[number + 1 :]
            document = options_as_located_settings(file, command, options)
            draft = draft_of_document(
                document, "open-instruct", OPEN_INSTRUCT_RELEASE, LORA_DEFAULTS
            )
            config = _read_options(draft, METHOD_OF_PROGRAM[match["program"]])
            yield replace(config, own_keys=may_variable_hold_options(options))
            break


def _read_options(draft: ConfigDraft, method: str) -> Config:
    """The options of one command. Raises SpecError for a value that a field does not take."""
    draft.put("training.method", method)
    draft.take("model", "model_name_or_path", made=draft.local_folder_or_name)
    for option, field in NUMBERS.items():
        if option in draft.values:
            set_field_to_number(draft, f"training.{field}", option)
    draft.take("training.lr_scheduler_type", "lr_scheduler_type", made=str)
    if method == "dpo":
        # `dpo_norm` divides by the lengths, and its beta (5) is of another size than that of DPO.
        draft.take(
            "training.loss_type",
            "dpo_loss_type",
            made=lambda name: "sigmoid" if name == "dpo" else str(name),
        )
    if is_switched_on(draft.get("use_lora")):
        lora = {
            "r": draft.get("lora_rank"),
            "lora_alpha": draft.get("lora_alpha"),
            "target_modules": "all-linear",
        }
        draft.put("training.lora", lora, "use_lora")
    limit = draft.get("max_seq_length")
    limit = limit if type(limit) is int else None
    draft.put("max_length", limit, "max_seq_length")
    draft.notes.append("a command of open-instruct: its rows are not read; name them beside it")
    return draft.make_config(draft.values.keys(), limit, ())
