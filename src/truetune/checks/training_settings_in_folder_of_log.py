"""Reads what the files in the folder of a log set: LoRA adapters (alpha, rank), precisions, accumulation,
whatever the stack. The files are settings, scripts and saved adapters.

Settings and the arguments of scripts are read as the rules on them read them. A folder may hold the files of several
runs; a rule takes a scale only where all files agree on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_place
from truetune.checks.find_schedule_lengths_beside_log import schedule_lengths_of_file
from truetune.checks.hyperparameter_limits import parse_setting_number
from truetune.checks.read_training_script_for_its_settings import read_training_module
from truetune.checks.source.evidence.hyperparameter_arguments_out_of_range import (
    training_hyperparameter_calls,
)
from truetune.checks.source.evidence.models_loaded_from_adapter_folders import ADAPTER_CONFIG
from truetune.checks.trainer_settings_in_own_files import trainer_settings_in_own_file
from truetune.errors import TruetuneError
from truetune.logs.facts_in_files_beside_log import (
    NOTHING_BESIDE,
    AdapterBeside,
    FilesBeside,
    SettingBeside,
)
from truetune.parsing.shell_commands import is_command_file, read_command_file
from truetune.settings.config import Config
from truetune.settings.located_document import read_located_document
from truetune.settings.recognise_input_kind import recognise_kinds
from truetune.settings.stacks.read_config_of_any_stack import read_config
from truetune.settings.stacks.registry import config_readers
from truetune.settings.stacks.settings_of_stack_commands import (
    configs_of_commands_without_settings_file,
)
from truetune.source.parsed_source_file import Module
from truetune.source.settings_of_script_as_configs import extract_configs

SCRIPT_SUFFIXES = (".py", ".ipynb")
SETTINGS_SUFFIXES = (".yaml", ".yml", ".json", ".toml")
MAX_BYTES = 1 << 20
"""Of a file that is looked through; a larger one holds rows"""
# Chosen, not measured: a folder of a run has a handful; each script is parsed whole.
MAX_FILES = 12
"""Files of the log's own folder that are read where the log alone was named"""
FIELDS = ("bf16", "fp16", "gradient_accumulation_steps")
"""Settings besides adapters that rules ask of the files beside a log that was named alone"""
ALPHA, RANK = "training.lora.lora_alpha", "training.lora.r"


class _Trainings(NamedTuple):
    """The trainings that a file holds."""

    configs: list[Config]
    adapters: list[AdapterBeside]


NO_TRAININGS = _Trainings([], [])


def lora_adapters_of_files(files: Iterable[Path]) -> list[AdapterBeside]:
    """The LoRA adapters, with alpha and rank, that these files set.

    Files that can't be read set none.
    """
    return [adapter for file in files for adapter in _trainings_of_file(file).adapters]


def read_training_settings_in_folder_of_log(log: Path) -> FilesBeside:
    """The adapters, precisions and accumulation that the files in the folder of a log set, for a log
    that was named alone.
    """
    files = _scripts_and_settings_in(log if log.is_dir() else log.parent)
    if not files:
        return NOTHING_BESIDE
    files = files[:MAX_FILES]
    trainings = [_trainings_of_file(file) for file in files]
    settings = [
        setting
        for one in trainings
        for config in one.configs
        for setting in _settings_beside_log_of_config(config)
    ]
    for file in files:
        settings += schedule_lengths_of_file(file)
        if file.suffix in SETTINGS_SUFFIXES and file.stat().st_size <= MAX_BYTES:
            settings += trainer_settings_in_own_file(file, FIELDS)
    return FilesBeside(
        settings=tuple(settings),
        adapters=tuple(adapter for one in trainings for adapter in one.adapters),
    )


def _scripts_and_settings_in(folder: Path) -> list[Path]:
    """The scripts and the files of settings directly in a folder."""
    suffixes = (*SCRIPT_SUFFIXES, *SETTINGS_SUFFIXES)
    try:
        return sorted(
            path for path in folder.iterdir() if path.suffix in suffixes and path.is_file()
        )
    except OSError:
        return []


def _settings_beside_log_of_config(config: Config) -> Iterator[SettingBeside]:
    """The settings of FIELDS that a config sets, as settings beside a log."""
    for name in FIELDS:
        place = config.places.get(f"training.{name}")
        value = getattr(config.spec.training, name)
        if place is not None and isinstance(value, bool | int):
            text = f"{place.key}={value}"
            yield SettingBeside(name, value, place.file, place.line, text)


def _trainings_of_file(file: Path) -> _Trainings:
    """The trainings of one file; none where it can't be read, which the rules on the file itself say."""
    try:
        if file.name == ADAPTER_CONFIG:
            return _Trainings([], list(_saved_adapter(file)))
        if file.suffix in SCRIPT_SUFFIXES:
            return _trainings_of_script(read_training_module(file))
        configs = list(_configs_of_file(file))
    except (TruetuneError, OSError, ValueError):
        return NO_TRAININGS
    return _Trainings(configs, [one for config in configs for one in _adapter_of_config(config)])


def _configs_of_file(file: Path) -> Iterable[Config]:
    """The settings of trainings in a file of settings or of commands."""
    if is_command_file(file):
        return configs_of_commands_without_settings_file(read_command_file(file))
    is_small = file.suffix in SETTINGS_SUFFIXES and file.stat().st_size <= MAX_BYTES
    if is_small and recognise_kinds(file)[0] in config_readers():
        return [read_config(file)]
    return ()


def _adapter_of_config(config: Config) -> Iterator[AdapterBeside]:
    """The adapter that settings train, where they set its alpha or its rank."""
    lora = config.spec.training.lora
    if lora is None or not {ALPHA, RANK}.intersection(config.places):
        return
    place = setting_place(config, ALPHA if ALPHA in config.places else RANK)
    yield AdapterBeside(place.file, place.line, lora.lora_alpha, lora.r, lora.use_rslora)


def _trainings_of_script(module: Module) -> _Trainings:
    """The settings of a script's trainers, with the adapters in them and in calls beside them."""
    configs = list(extract_configs(module))
    adapters = [one for config in configs for one in _adapter_of_config(config)]
    return _Trainings(configs, [*adapters, *_adapters_in_calls(module)])


def _adapters_in_calls(module: Module) -> Iterator[AdapterBeside]:
    """The adapters that calls of a script set with both alpha and rank."""
    for hyperparameter_call in training_hyperparameter_calls(module):
        alpha, rank = (
            parse_setting_number(hyperparameter_call.values.get(one)) for one in (ALPHA, "r")
        )
        if alpha is None or rank is None or rank < 1:
            continue
        line, _ = module.place(hyperparameter_call.nodes[ALPHA])
        stabilised = module.flow.value(hyperparameter_call.call.keywords.get("use_rslora")) is True
        path = module.home(hyperparameter_call.call.node).path
        yield AdapterBeside(path, line, alpha, int(rank), stabilised)


def _saved_adapter(file: Path) -> Iterator[AdapterBeside]:
    """The adapter that a run saved."""
    document = read_located_document(file).value
    if not isinstance(document, dict):
        return
    alpha, rank = (parse_setting_number(document.get(one)) for one in ("lora_alpha", "r"))
    if alpha is not None and rank is not None and rank >= 1:
        stabilised = document.get("use_rslora") is True
        yield AdapterBeside(str(file), 0, alpha, int(rank), stabilised)
