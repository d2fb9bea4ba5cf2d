"""A DeepSpeed or FSDP config file is next to the launch, but nothing uses it.

## What it does
Looks for DeepSpeed files (`zero_optimization`) and accelerate files (`distributed_type: FSDP` or `DEEPSPEED`) in the
folder of a command that starts a multi-process training. It fires if no option, argument, setting or variable that is
read names such a file, and no line mentions DeepSpeed or FSDP. It names a variable that neither a library nor a script
reads. It is info if `accelerate launch` may have its own default configuration and no log shows its mode, or if neither
a variable nor a log shows that the file was meant for this run.

## Why it is bad
The run is plain DDP: each GPU holds all weights, gradients and optimizer states. It runs out of memory on any number of
GPUs, as if the file did not exist, or trains with other settings than those in the file.

## Example
```yaml
files:
  ds_zero3.json: '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}'
  train.py: |
    from trl import SFTConfig, SFTTrainer
    SFTTrainer("org/model", SFTConfig("out", max_length=2048), train_dataset=rows).train()
  run.sh: |
    export DS_FILE=ds_zero3.json
    torchrun --nproc_per_node 4 train.py
```

## Use instead
```yaml
files:
  ds_zero3.json: '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}'
  train.py: |
    from trl import SFTConfig, SFTTrainer
    SFTTrainer("org/model", SFTConfig("out", max_length=2048, deepspeed="ds_zero3.json"), train_dataset=rows).train()
  run.sh: |
    torchrun --nproc_per_node 4 train.py
```

## Fix safety
Safe: it changes where weights are stored, not the training result. The file is then read for the first time; its batch
sizes and learning rate must match those of the run, so set them to "auto".

## References
- huggingface/accelerate, `accelerate launch` (`--use_deepspeed`, `--deepspeed_config_file`, `--config_file`);
  huggingface/transformers, `TrainingArguments.deepspeed`
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.faults import Fault
from truetune.checks.find_unread_deepspeed_and_fsdp_settings import (
    UnreadFile,
    find_unread_sharding_file,
)
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import CommandRule
from truetune.parsing.input_limits import SETTINGS as SCRIPT_LIMIT
from truetune.parsing.input_limits import InputLimitError
from truetune.parsing.read_files_within_limits import read_bytes_within_limit
from truetune.parsing.shell_commands import CommandFile, ShellCommand, last_option

LAUNCHERS = (("accelerate", "launch"), ("torchrun",), ("torch.distributed.run",),
             ("torch.distributed.launch",))  # fmt: skip
PROCESS_OPTIONS = ("--num-processes", "--nproc-per-node")
TRAINS = re.compile(r"Trainer\b|\.backward\(|\.train\(\)")
UNLESS_BY_DEFAULT = "unless accelerate's default configuration names it"
SETTINGS = (".yaml", ".yml", ".json", ".toml")


class ShardingFileNotRead(CommandRule):
    code = "CMD137"
    fault = Fault.SETTINGS_NOT_USED
    symptoms = ("out-of-memory", "several-gpus")
    severity = "warning"
    what = "launches of a training on several processes"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[ShellCommand]:
        """The places that the rule looks at: the launches of a training on several processes."""
        for command in file.commands:
            if _is_plain_multi_process_launch(command) and _trains_in_folder(
                command, Path(file.path).parent
            ):
                yield command

    def findings(self) -> Iterator[Finding]:
        folder = Path(self.subject.path).parent
        command = next(iter(self.examined_places(self.subject)), None)
        unread = find_unread_sharding_file(folder) if command is not None else None
        if command is None or unread is None:
            return
        is_accelerate = command.words_following("accelerate", "launch") is not None
        may_have_defaults = is_accelerate and last_option(command.words, "--config-file") is None
        is_by_log = bool(unread.plain_mode or unread.has_no_defaults)
        may_be_default = may_have_defaults and not is_by_log
        # A file of another plan may lie there; a variable that holds its name was meant for this run.
        is_meant = is_by_log or bool(unread.variable)
        name = unread.file.path.name
        yield self.finding(
            f"{name} ({unread.file.what}) is not used: {_why_unread(unread)}. The run is plain"
            f" DDP{_evidence_log_in_brackets(unread)}: each GPU holds all weights, gradients and optimizer states",
            _remedy_for_unread_file(unread, is_accelerate),
            severity="warning" if is_meant and not may_be_default else "info",
            evidence=[UNLESS_BY_DEFAULT] if may_be_default else [],
            cases=[
                Case(
                    f"{unread.file.what}: no option, argument or setting names this file",
                    file=str(unread.file.path),
                    line=1,
                ),
                self.case_of_command(command, command.text[:300]),
            ],
        )


def _why_unread(unread: UnreadFile) -> str:
    """Why the file that is named is not read, in words."""
    if not unread.variable:
        return "no option, argument, setting or variable names it"
    return (
        f"only the variable {unread.variable} names it ({Path(unread.holder).name}:{unread.line}), which neither a"
        " script here nor accelerate or transformers reads"
    )


def _evidence_log_in_brackets(unread: UnreadFile) -> str:
    """The log that says so, in brackets; empty without one."""
    return f" ({unread.plain_mode}: DistributedType.MULTI_GPU)" if unread.plain_mode else ""


def _remedy_for_unread_file(unread: UnreadFile, is_accelerate: bool) -> str:
    """The remedy: the edit by which the file is read."""
    name = unread.file.path.name
    if not unread.file.is_deepspeed:
        return f"start the training with `accelerate launch --config_file {name}`"
    argument = (
        f'pass deepspeed="{name}" to the training arguments (TrainingArguments, SFTConfig, ...)'
    )
    if not is_accelerate:
        return argument
    return (
        f"start the training with `accelerate launch --use_deepspeed --deepspeed_config_file {name}"
        f" --zero3_init_flag true`; or {argument}"
    )


def _is_plain_multi_process_launch(command: ShellCommand) -> bool:
    """Does a command start several processes, all of whose files are plain names?"""
    if not any(command.words_following(*words) is not None for words in LAUNCHERS):
        return False
    processes = last_option(command.words, *PROCESS_OPTIONS)
    return processes != "1" and not any("@" in word for word in command.words)


def _trains_in_folder(command: ShellCommand, folder: Path) -> bool:
    """Does the script train, and are it and all files of settings that the command names in the folder?"""
    named = [word.rpartition("=")[2] for word in command.words if word.endswith((*SETTINGS, ".py"))]
    scripts = [word for word in named if word.endswith(".py")]
    try:
        if not scripts or not all((folder / word).is_file() for word in named):
            return False
        texts = [read_bytes_within_limit(folder / word, SCRIPT_LIMIT) for word in scripts]
    except (OSError, ValueError, InputLimitError):
        return False
    return any(TRAINS.search(text.decode("utf-8", "replace")) for text in texts)
