"""Reads the options of Megatron-LM's training commands: `torchrun pretrain_gpt.py --lr 1e-5 --train-iters 2000`.

Its scripts are copied and renamed (`pretrain_llama.py`, `finetune_gpt.py`), so a command is told by its options: a
micro batch beside the length of the training. The model is in a checkpoint of Megatron's own (`--load`), and what it is
called follows from its tokenizer alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from truetune.parsing.shell_commands import CommandFile, ShellCommand
from truetune.settings.config import Config
from truetune.settings.stacks.config_draft import ConfigDraft, draft_of_document
from truetune.settings.stacks.options_of_commands import (
    may_variable_hold_options,
    options_as_located_settings,
)
from truetune.settings.stacks.read_nested_rl_settings import set_field_to_number

MEGATRON_RELEASE = "0.14"
"""Of Megatron Core"""
BATCH, ITERATIONS, SAMPLES = "--micro-batch-size", "--train-iters", "--train-samples"
NUMBERS = {
    "lr": "learning_rate",
    "weight_decay": "weight_decay",
    "clip_grad": "max_grad_norm",
    "train_iters": "max_steps",
    "lr_warmup_iters": "warmup_steps",
    "micro_batch_size": "per_device_train_batch_size",
}
"""Option, with underscores -> the field"""


def megatron_options(command: ShellCommand) -> tuple[str, ...] | None:
    """The options of a command that trains by Megatron-LM, behind its script; None for other commands."""
    script = next((n for n, word in enumerate(command.words) if word.endswith(".py")), None)
    if script is None:
        return None
    options = command.words[script + 1 :]
    names = {word.partition("=")[0].replace("_", "-") for word in options}
    is_built = bool(names & {"--num-layers", "--use-checkpoint-args"})
    trains = BATCH in names and bool(names & {ITERATIONS, SAMPLES})
    return options if is_built and trains else None


def configs_of_megatron_commands(file: CommandFile) -> Iterator[Config]:
    """The settings of each command of Megatron-LM that trains. Raises SpecError."""
    for command in file.commands:
        options = megatron_options(command)
        if options is None:
            continue
        document = options_as_located_settings(file, command, options)
        draft = draft_of_document(document, "megatron-lm", MEGATRON_RELEASE, {})
        yield replace(_read_options(draft), own_keys=may_variable_hold_options(options))


def _read_options(draft: ConfigDraft) -> Config:
    """The options of one command. Raises SpecError for a value that a field does not take."""
    draft.put("training.method", "sft" if draft.get("sft") is True else "pretrain", "sft")
    tokenizer = draft.get("tokenizer_model")
    if isinstance(tokenizer, str):
        draft.put("model", draft.local_folder_or_name(tokenizer), "tokenizer_model")
    for option, field in NUMBERS.items():
        set_field_to_number(draft, f"training.{field}", option)
    if "lr_warmup_iters" not in draft.values:
        set_field_to_number(draft, "training.warmup_ratio", "lr_warmup_fraction")
    draft.take("training.bf16", "bf16")
    draft.take("training.fp16", "fp16")
    draft.take("training.lr_scheduler_type", "lr_decay_style", made=str)
    limit = draft.get("seq_length")
    draft.notes.append("a command of Megatron-LM: its rows are not read")
    return draft.make_config(draft.values.keys(), limit if type(limit) is int else None, ())
