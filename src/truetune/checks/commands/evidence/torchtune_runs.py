"""The runs of torchtune that commands start: `tune run RECIPE --config FILE [key=value ...]`, with the weights that
each loads and the folder that it writes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from truetune.checks.read_settings_in_launch_files import read_document_in_folder_or_parents
from truetune.parsing.shell_commands import ShellCommand, last_option
from truetune.settings.stacks.read_nested_rl_settings import flatten_tables_to_settings

TRAINING_RECIPE = re.compile(r"finetune|dpo|ppo|grpo|distill|qat")
ASKING_RECIPES = ("eleuther_eval", "generate", "dev/generate_v2")
"""Recipes that evaluate a model, or have it answer"""
INTERPOLATION = re.compile(r"\$\{([\w.]+)\}")
OVERRIDE = re.compile(r"([A-Za-z_][\w.]*)=(.*)", re.S)
MAX_INTERPOLATIONS = 4
"""Settings that name each other"""


class TorchtuneRun(NamedTuple):
    """One run, as far as its settings are here."""

    recipe: str
    weights: str
    """The folder of `checkpointer.checkpoint_dir`"""
    output: str
    has_adapter: bool
    """Does it load an adapter beside the weights?"""

    @property
    def trains(self) -> bool:
        """Does the recipe train?"""
        return TRAINING_RECIPE.search(self.recipe) is not None

    @property
    def does_evaluate_or_generate(self) -> bool:
        """Does the recipe evaluate the model, or have it answer?"""
        return self.recipe in ASKING_RECIPES


def torchtune_run_of(command: ShellCommand, folder: Path) -> TorchtuneRun | None:
    """The run of torchtune that a command starts; None where it starts none, or its settings are not here.

    Args:
        command: of a file.
        folder: of that file.
    """
    words = command.words_following("tune", "run")
    recipe = next((word for word in words or () if _is_recipe(word)), None)
    config = _config_of_words(words or ())
    if words is None or recipe is None or config is None:
        return None
    document = read_document_in_folder_or_parents(folder, config)
    if document is None:
        return None
    written = {".".join(way): value for way, value in flatten_tables_to_settings(document.value)}
    settings = {**written, **_overrides(words)}
    return TorchtuneRun(
        recipe,
        _setting_with_references_resolved(settings, "checkpointer.checkpoint_dir"),
        _setting_with_references_resolved(settings, "output_dir")
        or _setting_with_references_resolved(settings, "checkpointer.output_dir"),
        bool(settings.get("checkpointer.adapter_checkpoint")),
    )


def _is_recipe(word: str) -> bool:
    """Is a word the name of a recipe of torchtune?"""
    return word in ASKING_RECIPES or (
        not word.startswith("-")
        and "=" not in word
        and TRAINING_RECIPE.search(word) is not None
        and not word.endswith((".yaml", ".yml"))
    )


def _config_of_words(words: tuple[str, ...]) -> str | None:
    """The file that `--config` names; None where it is the name of one that torchtune brings."""
    name = last_option(words, "--config")
    return name if name is not None and name.endswith((".yaml", ".yml")) else None


def _overrides(words: tuple[str, ...]) -> dict[str, str]:
    """The settings that a command overrides."""
    matches = (OVERRIDE.fullmatch(word) for word in words)
    return {match[1]: match[2] for match in matches if match is not None}


def _setting_with_references_resolved(settings: Mapping[str, Any], name: str) -> str:
    """A setting as text, with the settings that it names put in; empty where it is not set."""
    value = settings.get(name)
    text = value if isinstance(value, str) else ""
    for _ in range(MAX_INTERPOLATIONS):
        text = INTERPOLATION.sub(lambda found: str(settings.get(found[1], "")), text)
    return text
