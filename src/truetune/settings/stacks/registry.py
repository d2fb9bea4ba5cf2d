"""The table of programs whose settings files truetune reads, with the reader of each.

The table here is the only place where such a program is registered. One of another package is an entry point of the
group `truetune.config_readers` whose object is a `ConfigReader`. Rules that hold for one program name it themselves
(`ConfigRule.stacks`); all others read the `Config` that `read` makes, and so hold for plug-ins too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from truetune.errors import UsageError
from truetune.plugins import load_plugins
from truetune.settings.config import Config, Stack
from truetune.settings.located_document import LocatedDocument
from truetune.settings.stacks import (
    read_autotrain_yaml,
    read_axolotl_yaml,
    read_litgpt_yaml,
    read_llama_factory_settings,
    read_mergekit_yaml,
    read_nested_rl_settings,
    read_prime_rl_toml,
    read_swift_command_options,
    read_torchtune_recipe,
    read_training_arguments_file,
    read_trl_yaml,
    read_truetune_yaml,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigReader:
    """One program, and how its settings files are read."""

    name: Stack
    title: str
    """As a report calls its files: `Axolotl configuration`"""
    read: Callable[[LocatedDocument], Config]
    """The settings of a parsed file. Raises SpecError."""
    keys: Callable[[], frozenset[str]]
    """All keys that tell a file of this program, those of earlier releases among them"""
    model_key: str
    """What its files call the model"""
    unknown_key: str
    """What becomes of a key that it does not know: `Axolotl silently drops it`"""
    command: str = ""
    """What trains by such a file: `axolotl train FILE`; empty where scripts alone do"""
    command_in_text: re.Pattern[str] | None = None
    """Finds that command in shell scripts and READMEs; None where a file is told by its keys alone"""
    trains: bool = True
    """Is a run of it a training? Rules that do not name a program that merges or evaluates are not about its files"""


BUILT_IN = (
    ConfigReader(
        name="truetune",
        title="truetune settings",
        read=read_truetune_yaml.read_truetune_config,
        keys=read_truetune_yaml.truetune_keys,
        model_key="model",
        unknown_key="truetune stops at it",
        command="truetune train FILE",
    ),
    ConfigReader(
        name="trl",
        title="TRL configuration",
        read=read_trl_yaml.read_trl_config,
        keys=read_trl_yaml.trl_keys,
        model_key="model_name_or_path",
        unknown_key="TRL's own scripts silently drop it; the `trl` command stops at it",
        command="trl sft --config FILE",
        command_in_text=re.compile(
            r"\btrl(?:\s+|\.scripts\.)(?:sft|dpo|grpo|kto|reward|rloo|orpo|cpo)\b"
        ),
    ),
    ConfigReader(
        name="axolotl",
        title="Axolotl configuration",
        read=read_axolotl_yaml.read_axolotl_config,
        keys=read_axolotl_yaml.axolotl_keys,
        model_key="base_model",
        unknown_key="Axolotl silently drops it",
        command="axolotl train FILE",
        command_in_text=re.compile(
            r"\baxolotl(?:\s+|\.cli\.)(?:train|preprocess|evaluate|merge[-_]lora|inference)\b"
        ),
    ),
    ConfigReader(
        name="llama-factory",
        title="LLaMA-Factory configuration",
        read=read_llama_factory_settings.read_llama_factory_config,
        keys=read_llama_factory_settings.llama_factory_keys,
        model_key="model_name_or_path",
        unknown_key="LLaMA-Factory stops at it",
        command="llamafactory-cli train FILE",
        command_in_text=re.compile(
            r"\b(?:llamafactory-cli|llamafactory\.cli|lmf)\s+(?:train|export|chat|api|eval|webchat)\b"
        ),
    ),
    ConfigReader(
        name="torchtune",
        title="torchtune recipe",
        read=read_torchtune_recipe.read_torchtune_config,
        keys=read_torchtune_recipe.keys_that_tell_torchtune_recipe,
        model_key="model",
        unknown_key="torchtune hands it to the recipe, which may not read it",
        command="tune run RECIPE --config FILE",
        command_in_text=re.compile(r"\btune\s+run\b"),
    ),
    ConfigReader(
        name="ms-swift",
        title="ms-swift configuration",
        read=read_swift_command_options.read_swift_config,
        keys=read_swift_command_options.swift_keys,
        model_key="model",
        unknown_key="ms-swift stops at it",
        command="swift sft FILE",
        command_in_text=re.compile(r"\bswift\s+(?:sft|pt|rlhf)\b"),
    ),
    ConfigReader(
        name="verl",
        title="verl configuration",
        read=read_nested_rl_settings.read_verl_config,
        keys=read_nested_rl_settings.verl_keys,
        model_key="model",
        unknown_key="verl stops at it",
        command="python -m verl.trainer.main_ppo --config-name NAME",
    ),
    ConfigReader(
        name="nemo-rl",
        title="NeMo RL configuration",
        read=read_nested_rl_settings.read_nemo_rl_config,
        keys=read_nested_rl_settings.nemo_rl_keys,
        model_key="model_name",
        unknown_key="NeMo RL stops at it",
        command="uv run examples/run_grpo.py --config FILE",
    ),
    ConfigReader(
        name="prime-rl",
        title="prime-rl configuration",
        read=read_prime_rl_toml.read_prime_rl_config,
        keys=read_prime_rl_toml.prime_rl_keys,
        model_key="model",
        unknown_key="prime-rl stops at it",
        command="uv run rl @ FILE",
    ),
    ConfigReader(
        name="litgpt",
        title="LitGPT configuration",
        read=read_litgpt_yaml.read_litgpt_config,
        keys=read_litgpt_yaml.litgpt_keys,
        model_key="model_name",
        unknown_key="LitGPT stops at it",
        command="litgpt finetune_lora --config FILE",
        command_in_text=re.compile(r"\blitgpt\s+(?:finetune\w*|pretrain)\b"),
    ),
    ConfigReader(
        name="autotrain",
        title="AutoTrain configuration",
        read=read_autotrain_yaml.read_autotrain_config,
        keys=read_autotrain_yaml.autotrain_keys,
        model_key="base_model",
        unknown_key="AutoTrain drops it",
        command="autotrain --config FILE",
        command_in_text=re.compile(r"\bautotrain\s+--config\b"),
    ),
    ConfigReader(
        name="mergekit",
        title="mergekit configuration",
        read=read_mergekit_yaml.read_mergekit_config,
        keys=read_mergekit_yaml.mergekit_keys,
        model_key="base_model",
        unknown_key="mergekit drops it",
        trains=False,
    ),
    ConfigReader(
        name="transformers",
        title="arguments of transformers",
        read=read_training_arguments_file.read_training_arguments_config,
        keys=read_training_arguments_file.training_arguments_keys,
        model_key="model_name_or_path",
        unknown_key="transformers stops at it",
    ),
)


@cache
def config_readers() -> Mapping[Stack, ConfigReader]:
    """All readers by the names of their programs, truetune's own first.

    Raises:
        UsageError: a plug-in's object is no ConfigReader, or reads a program that is registered already.
    """
    readers = {reader.name: reader for reader in BUILT_IN}
    for name, brought in load_plugins("truetune.config_readers").items():
        if not isinstance(brought, ConfigReader):
            raise UsageError(
                f"the plug-in {name}: expected a truetune.settings.stacks.registry.ConfigReader, found"
                f" a {type(brought).__name__}"
            )
        if brought.name in readers:
            raise UsageError(f"the plug-in {name}: {brought.name} is read already")
        readers[brought.name] = brought
    return readers


def readers_of_other_programs() -> Mapping[Stack, ConfigReader]:
    """The readers of settings files of other programs than truetune."""
    return {name: reader for name, reader in config_readers().items() if name != "truetune"}
