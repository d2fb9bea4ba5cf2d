"""Finds the training stages of the given files: what each training starts from, and which folder it
writes.

An SFT writes an adapter or a model, and a preference run is meant to start from it. The files say both in text:
settings of LLaMA-Factory, Axolotl and TRL, commands that train by options, and scripts whose settings are calls.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from truetune.checks.describe_what_loss_averages import loss_basis
from truetune.checks.source.evidence.files_where_each_row_makes_one_example_at_most import (
    READERS,
    local_row_files_of_only_trainer,
)
from truetune.data.script_rows.read_rows_given_to_trainer import read_module_with_helpers
from truetune.parsing.shell_commands import is_command_file, read_command_file
from truetune.settings.config import Config, TrainingStage
from truetune.settings.recognise_input_kind import recognise_kinds
from truetune.settings.stacks.read_config_of_any_stack import read_config
from truetune.settings.stacks.registry import config_readers
from truetune.settings.stacks.settings_of_stack_commands import (
    configs_of_commands_without_settings_file,
)
from truetune.source.parsed_source_file import Module
from truetune.source.settings_of_script_as_configs import extract_configs
from truetune.trainers.trainer_fact_types import TrainerName

SETTINGS = (".yaml", ".yml", ".json")
TRAINS = (b"Trainer(", b"Config(")
"""One of them stands in each script with settings of a trainer; others need not be parsed"""
LATER_METHODS = ("dpo", "kto", "reward")
"""Methods of stages that come behind an SFT; ORPO and CPO train on the answers themselves and need none"""


def stages_of_file(path: Path, trained_by: TrainerName | None = None) -> Iterator[TrainingStage]:
    """The training stages in one file: each with what it starts from and the folder it writes."""
    for config in _configs_of_file(path, trained_by):
        stage = stage_of_config(config)
        if stage is not None:
            yield stage


def _configs_of_file(path: Path, trained_by: TrainerName | None) -> Iterable[Config]:
    """The settings of trainings in a file of settings, of commands, or in a script."""
    if is_command_file(path):
        return configs_of_commands_without_settings_file(read_command_file(path))
    if path.suffix == ".py":
        return _configs_of_script(path)
    if path.suffix in SETTINGS and recognise_kinds(path, trained_by)[0] in config_readers():
        return [read_config(path, trained_by)]
    return ()


def _configs_of_script(path: Path) -> Iterable[Config]:
    """The settings that a script makes by calls."""
    text = path.read_bytes()
    if not all(word in text for word in TRAINS):
        return ()
    module = read_module_with_helpers(path)
    rows = local_row_files_of_only_trainer(module) or _hub_data_sets_loaded(module)
    return [replace(config, row_files=rows) for config in extract_configs(module)]


def _hub_data_sets_loaded(module: Module) -> tuple[str, ...]:
    """The data sets of the hub that a script loads, by the names that stand in its calls."""
    names = (
        call.args[0].value
        for call in module.calls("datasets.load_dataset")
        if call.args and isinstance(call.args[0], ast.Constant)
    )
    return tuple(name for name in names if isinstance(name, str) and name not in READERS)


def stage_of_config(config: Config) -> TrainingStage | None:
    """The training that some settings are; None where they train nothing, or do not say where they write."""
    output = config.raw.get("output_dir")
    if not isinstance(output, str) or not output:
        return None
    if config.stack == "llama-factory" and not config.raw.get("do_train"):
        return None
    raw_model = config.raw.get("model_name_or_path") or config.raw.get("base_model")
    model = raw_model or config.spec.model
    if not isinstance(model, str) or not model:
        return None
    training = config.spec.training
    adapters = tuple(
        name.strip() for name in str(training.adapter or "").split(",") if name.strip()
    )
    return TrainingStage(
        config.path,
        training.method,
        model,
        adapters,
        output,
        training.lora is not None,
        loss_basis(config),
    )
