"""Reads what a command of verl sets: `python -m verl.trainer.main_ppo algorithm.adv_estimator=grpo`.

Each word `a.b.c=value` overrides one setting of verl's own YAML (Hydra). Where the command names a YAML of the project
(`--config-path . --config-name grpo`) that is here, its settings are read below the overrides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from truetune.errors import TruetuneError
from truetune.parsing.shell_commands import CommandFile, ShellCommand, last_option
from truetune.settings import located_document
from truetune.settings.config import Config
from truetune.settings.located_document import KeyPath, LocatedDocument, TextPosition
from truetune.settings.stacks.config_draft import UNKNOWN_VALUE
from truetune.settings.stacks.options_of_commands import (
    may_variable_hold_options,
    parse_value_word,
    position_in_command,
)
from truetune.settings.stacks.read_nested_rl_settings import VERL_KEYS, read_verl_config

PROGRAMS = re.compile(
    r"(?:verl\.trainer\.|(?:.*/)?verl/trainer/)"
    r"(?P<program>main_ppo|fsdp_sft_trainer|sft_trainer)(?:\.py)?"
)
"""Module or path of verl's programs that train"""
OVERRIDE = re.compile(r"\+{0,2}(?P<key>[A-Za-z_]\w*(?:\.\w+)+)=(?P<value>.*)", re.S)
TOP_KEY = re.compile(r"\+{0,2}(?P<key>[A-Za-z_]\w*)(?:\.\w+)*=.*", re.S)
"""An override, with the first part of its key: `max_turns=4` too"""
MODELS_OF_RL = "actor_rollout_ref"
"""The table that all of verl's trainings by rewards have"""
SFT_PROGRAMS = ("fsdp_sft_trainer", "sft_trainer")


def configs_of_verl_commands(file: CommandFile) -> Iterator[Config]:
    """The settings of each command of verl that overrides some. Raises SpecError."""
    for command in file.commands:
        found = _program_and_words(command)
        if found is None:
            continue
        program, words = found
        overrides = list(_overrides(words))
        if not overrides:
            continue
        values, spots = _override_tables_and_positions(file, command, overrides)
        base = _yaml_of_command(Path(file.path).parent, words)
        if program in SFT_PROGRAMS:
            # Without it, the overrides of an SFT that names no model are not told from those of RL.
            values.setdefault("model", {}).setdefault("partial_pretrain", UNKNOWN_VALUE)
        elif MODELS_OF_RL not in values:
            values[MODELS_OF_RL] = {}
        if base is not None:
            values = _merge_tables_second_wins(base, values)
        config = read_verl_config(LocatedDocument(file.path, "", values, spots))
        names_a_file = last_option(words, "--config-name") is not None
        may_change_defaults = (
            config.own_keys
            or may_variable_hold_options(words)
            or (names_a_file and base is None)
            or _sets_key_of_another_program(words)
        )
        yield replace(config, own_keys=may_change_defaults)


def _program_and_words(command: ShellCommand) -> tuple[str, tuple[str, ...]] | None:
    """Which program of verl a command starts, and the words behind it.

    Programs that build on verl (DAPO's, those of agents) have modules of their own: their settings tell them.
    """
    for number, word in enumerate(command.words):
        match = PROGRAMS.fullmatch(word)
        if match is not None:
            return match["program"], command.words[number + 1 :]
    if any(word.lstrip("+").startswith(f"{MODELS_OF_RL}.") for word in command.words):
        return "main_ppo", command.words
    return None


def _overrides(words: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """The settings that the words override, with their values."""
    for word in words:
        match = OVERRIDE.fullmatch(word)
        if match is not None:
            yield match["key"], parse_value_word(match["value"].strip("'\""))


def _sets_key_of_another_program(words: Sequence[str]) -> bool:
    """Do the words override a key or a table that verl does not have?"""
    matches = (TOP_KEY.fullmatch(word) for word in words)
    return any(found is not None and found["key"] not in VERL_KEYS for found in matches)


def _override_tables_and_positions(
    file: CommandFile, command: ShellCommand, overrides: Sequence[tuple[str, Any]]
) -> tuple[dict[str, Any], dict[KeyPath, TextPosition]]:
    """The overrides as tables, and where each stands."""
    values: dict[str, Any] = {}
    spots: dict[KeyPath, TextPosition] = {}
    lines = file.text.splitlines()
    for key, value in overrides:
        *tables, last = key.split(".")
        table = values
        for name in tables:
            inner = table.setdefault(name, {})
            if not isinstance(inner, dict):
                inner = table[name] = {}
            table = inner
        table[last] = value
        written = re.compile(rf"(?<![\w.]){re.escape(key)}=")
        spots[tuple(key.split("."))] = position_in_command(lines, command.line, written)
    return values, spots


def _yaml_of_command(folder: Path, words: tuple[str, ...]) -> Mapping[str, Any] | None:
    """The settings of the YAML that a command names, where it is beside it; None where there is none."""
    name = last_option(words, "--config-name")
    if not name:
        return None
    where = (last_option(words, "--config-path") or ".").replace("${PWD}", ".").replace("$PWD", ".")
    for path in (folder / where / f"{name.removesuffix('.yaml')}.yaml", folder / f"{name}.yaml"):
        try:
            value = located_document.read_located_document(path).value if path.is_file() else None
        except (TruetuneError, OSError):
            value = None
        if isinstance(value, Mapping):
            return value
    return None


def _merge_tables_second_wins(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Tables in which the second's settings take the place of the first's."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            merged[key] = _merge_tables_second_wins(below, value)
        else:
            merged[key] = value
    return merged
