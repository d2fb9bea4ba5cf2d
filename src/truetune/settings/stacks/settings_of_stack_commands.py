"""Reads the settings that a command gives TRL, ms-swift, LLaMA-Factory, verl or OpenRLHF as options: `trl dpo
--learning_rate 5e-6 --use_peft`.

Only commands whose options are the whole of their settings are read: one that names a file of settings beside them is
left to the reader of that file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from truetune.parsing.shell_commands import CommandFile, ShellCommand
from truetune.settings.config import Config
from truetune.settings.stacks import (
    read_llama_factory_settings,
    read_swift_command_options,
    read_trl_yaml,
)
from truetune.settings.stacks.options_of_commands import options_as_located_settings
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
                yield read_swift_command_options.read_swift_options(
                    options_as_located_settings(file, command, options), kind
                )
        options = command.words_following("llamafactory-cli", "train") or ()
        if options and options[0].startswith("--"):
            yield read_llama_factory_settings.read_llama_factory_config(
                options_as_located_settings(file, command, options)
            )
    yield from configs_of_verl_commands(file)
    yield from configs_of_openrlhf_commands(file)


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
