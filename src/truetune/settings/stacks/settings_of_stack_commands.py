"""Reads the settings that a command gives a training as options: `trl dpo --learning_rate 5e-6 --use_peft`.

Commands of TRL, ms-swift, LLaMA-Factory, verl, OpenRLHF, Megatron-LM and open-instruct are known.
Only commands whose options are the whole of their settings are read: one that names a file of settings beside them is
left to the reader of that file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from truetune.parsing.shell_commands import CommandFile, ShellCommand
from truetune.settings.config import Config, SettingLocation
from truetune.settings.stacks import (
    read_llama_factory_settings,
    read_swift_command_options,
    read_trl_yaml,
)
from truetune.settings.stacks.options_of_commands import options_as_located_settings
from truetune.settings.stacks.read_megatron_commands import configs_of_megatron_commands
from truetune.settings.stacks.read_open_instruct_commands import configs_of_open_instruct_commands
from truetune.settings.stacks.read_openrlhf_options import configs_of_openrlhf_commands
from truetune.settings.stacks.read_verl_commands import configs_of_verl_commands

TRL_COMMAND_CLASSES = {
    "sft": "SFTConfig",
    "dpo": "DPOConfig",
    "kto": "KTOConfig",
    "orpo": "ORPOConfig",
    "cpo": "CPOConfig",
    "grpo": "GRPOConfig",
    "reward": "RewardConfig",
    "rloo": "RLOOConfig",
}
"""Commands of `trl`, which are the names of its scripts too -> the class of their settings"""
SWIFT_COMMANDS = ("sft", "pt", "rlhf")
"""Commands of ms-swift that train"""
TRL_SCRIPT = re.compile(r"(?:.*/)?trl/scripts/(\w+)\.py")
PROCESS_VARIABLES = (("NPROC_PER_NODE", ""), ("NNODES", "1"))
"""Variables by which ms-swift is told the number of processes, and their values where they are not set"""
SETTINGS_FILE = ("--config", "-c")


def configs_of_commands_without_settings_file(file: CommandFile) -> Iterator[Config]:
    """The settings of each command of a file that trains by options alone, as a Config."""
    for command in file.commands:
        name, options = _settings_class_and_options_of_command(command)
        if name and options:
            yield read_trl_yaml.read_trl_config(
                options_as_located_settings(file, command, options), name
            )
            continue
        for kind in SWIFT_COMMANDS:
            options = command.words_following("swift", kind) or ()
            if options and not any(one.partition("=")[0] in SETTINGS_FILE for one in options):
                config = read_swift_command_options.read_swift_options(
                    options_as_located_settings(file, command, options), kind
                )
                yield _with_processes_of_swift(config, file, command)
        options = command.words_following("llamafactory-cli", "train") or ()
        if options and options[0].startswith("--"):
            yield read_llama_factory_settings.read_llama_factory_config(
                options_as_located_settings(file, command, options)
            )
    yield from configs_of_verl_commands(file)
    yield from configs_of_openrlhf_commands(file)
    yield from configs_of_megatron_commands(file)
    yield from configs_of_open_instruct_commands(file)


def _with_processes_of_swift(config: Config, file: CommandFile, command: ShellCommand) -> Config:
    """The settings with the number of processes that ms-swift starts: that of NPROC_PER_NODE on each node."""
    counts = [command.variables.get(name, default) for name, default in PROCESS_VARIABLES]
    if not all(count.isdecimal() for count in counts):
        return config
    processes = math.prod(int(count) for count in counts)
    if processes < 1:
        return config
    training = config.spec.training.model_copy(update={"devices": processes})
    place = SettingLocation(file.path, command.line, PROCESS_VARIABLES[0][0])
    return replace(
        config,
        spec=config.spec.model_copy(update={"training": training}),
        places={**config.places, "training.devices": place},
    )


def _settings_class_and_options_of_command(command: ShellCommand) -> tuple[str, Sequence[str]]:
    """The class of the settings, and the options; empty if it is no such command, or names a file
    of settings.
    """
    for number, word in enumerate(command.words[:-1]):
        of_script = TRL_SCRIPT.fullmatch(word)
        follows = command.words[number + 1]
        if of_script is not None:
            script, rest = of_script[1], command.words[number + 1 :]
        elif word.rpartition("/")[2] == "trl":
            script, rest = follows, command.words[number + 2 :]
        elif word == "-m" and follows.startswith("trl.scripts."):
            script, rest = follows.removeprefix("trl.scripts."), command.words[number + 2 :]
        else:
            continue
        names_a_file = any(one.partition("=")[0] in SETTINGS_FILE for one in rest)
        return ("", ()) if names_a_file else (TRL_COMMAND_CLASSES.get(script, ""), rest)
    return "", ()
