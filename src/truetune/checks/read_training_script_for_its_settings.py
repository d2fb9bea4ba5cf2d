"""Reads a training script so that its settings are known: with the files that it imports, if it
leaves some of them open.

Scripts keep their settings in a file beside them (`from settings import Settings`), or make a trainer's arguments
there. Then the value stands in that file, and "not set" would be false.

The trade-off: the files that a script imports are read only where its own text leaves a value open, since most scripts
hold all their settings, and a folder of scripts would be read once for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.data.script_rows.read_rows_given_to_trainer import read_module_with_helpers
from truetune.errors import SpecError
from truetune.settings.config import Config
from truetune.settings.stacks.config_draft import holds_unknown_value
from truetune.source.parsed_source_file import Module, read_module
from truetune.source.settings_of_script_as_configs import extract_configs

TRAINERS = ("trl.*Trainer", "transformers.*Trainer")


def read_training_module(path: Path) -> Module:
    """A script, with the files that it imports where it leaves settings open. Raises DataError for no text."""
    module = read_module(path)
    return read_module_with_helpers(path) if _leaves_settings_open(module) else module


def find_only_config(module: Module) -> Config | None:
    """The one Config of a script; where it makes none itself, the one of the files that run with it and are its own.

    None where there is none, or more than one. Raises SpecError for a value that its field does not take.
    """
    configs = extract_configs(module)
    if not configs and makes_trainer_arguments(module):
        configs = tuple(_configs_of_imported_files(module))
    return configs[0] if len(configs) == 1 else None


def _configs_of_imported_files(module: Module) -> Iterator[Config]:
    """The Configs of what a script imports."""
    for helper in module.self_and_files_run_together:
        if helper is not module:
            yield from extract_configs(helper)


def _leaves_settings_open(module: Module) -> bool:
    """Does a script give a trainer a value that it does not hold itself?"""
    try:
        configs = extract_configs(module)
    except SpecError:
        return False  # who judges the settings names the value
    if not configs:
        return makes_trainer_arguments(module)
    return any(
        config.spec.training.open_length_limit or any(map(holds_unknown_value, config.raw.values()))
        for config in configs
    )


def makes_trainer_arguments(module: Module) -> bool:
    """Does a script give a trainer its arguments? Where it makes none in the open, they are from elsewhere."""
    return any(
        call.argument(1, "args") is not None or call.open for call in module.calls(*TRAINERS)
    )
