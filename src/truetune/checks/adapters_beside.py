"""The scale of the LoRA adapter that files beside a log set: settings of any stack, scripts, a saved adapter.

Settings and the arguments of scripts are read as the rules on them read them. A folder may hold the files of several
runs; who asks takes a scale only where all files agree on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from truetune.checks.config.evidence.setting_places import setting_place
from truetune.checks.hyperparameter_limits import parse_limit_number
from truetune.checks.source.evidence.find_hyperparameter_arguments import training_calls
from truetune.errors import TruetuneError
from truetune.logs.files_beside import (
    NOTHING_BESIDE,
    AdapterBeside,
    FilesBeside,
    SettingBeside,
)
from truetune.parsing.shell_commands import is_command_file, read_commands
from truetune.settings.config import Config
from truetune.settings.located_document import read_document
from truetune.settings.recognise_input_kind import recognise_kinds
from truetune.settings.stacks.command_options import configs_of_commands
from truetune.settings.stacks.config_file import read_config
from truetune.settings.stacks.registry import config_readers
from truetune.source.module import Module, read_module
from truetune.source.script_configs import extract_configs

ADAPTER_FILE = "adapter_config.json"
SCRIPT_SUFFIXES = (".py", ".ipynb")
SETTINGS_SUFFIXES = (".yaml", ".yml", ".json", ".toml")
MAX_BYTES = 1 << 20
"""Of a file that is looked through; a larger one holds rows"""
# Chosen, not measured: a folder of a run has a handful; each script is parsed whole.
MAX_FILES = 12
"""Files of the log's own folder that are read where the log alone was named"""
PRECISIONS = ("bf16", "fp16")
ALPHA, RANK = "training.lora.lora_alpha", "training.lora.r"


def adapters_of_files(files: Iterable[Path]) -> list[AdapterBeside]:
    """The adapters that these files set; what can't be read sets none."""
    found: list[AdapterBeside] = []
    for file in files:
        try:
            found += _adapters_of_file(file)
        except (TruetuneError, OSError, ValueError):
            continue  # who looks at the file itself says what is wrong with it
    return found


def files_beside_log(log: Path) -> FilesBeside:
    """The adapters and precisions that the files in the folder of a log set, where the log alone was named."""
    folder = log if log.is_dir() else log.parent
    try:
        files = sorted(path for path in folder.iterdir() if path.is_file())
    except OSError:
        return NOTHING_BESIDE
    wanted = [file for file in files if file.suffix in (*SCRIPT_SUFFIXES, *SETTINGS_SUFFIXES)]
    return FilesBeside(
        settings=tuple(_precisions_of_files(wanted[:MAX_FILES])),
        adapters=tuple(adapters_of_files(wanted[:MAX_FILES])),
    )


def _precisions_of_files(files: Iterable[Path]) -> Iterator[SettingBeside]:
    """The precisions that settings and scripts ask for."""
    for file in files:
        try:
            configs = list(_configs_of_file(file))
        except (TruetuneError, OSError, ValueError):
            continue  # who looks at the file itself says what is wrong with it
        for config in configs:
            for name in PRECISIONS:
                place = config.places.get(f"training.{name}")
                value = getattr(config.spec.training, name)
                if place is not None and isinstance(value, bool):
                    text = f"{place.key}={value}"
                    yield SettingBeside(name, value, place.file, place.line, text)


def _configs_of_file(file: Path) -> Iterable[Config]:
    """The settings of trainings that a file holds."""
    if file.suffix in SCRIPT_SUFFIXES:
        return extract_configs(read_module(file))
    if is_command_file(file):
        return configs_of_commands(read_commands(file))
    is_small = file.suffix in SETTINGS_SUFFIXES and file.stat().st_size <= MAX_BYTES
    if is_small and recognise_kinds(file)[0] in config_readers():
        return [read_config(file)]
    return ()


def _adapters_of_file(file: Path) -> Iterator[AdapterBeside]:
    """The adapters that one file sets."""
    if file.suffix in SCRIPT_SUFFIXES:
        yield from _adapters_of_script(read_module(file))
    elif file.name == ADAPTER_FILE:
        yield from _saved_adapter(file)
    else:
        for config in _configs_of_file(file):
            yield from _adapter_of_config(config)


def _adapter_of_config(config: Config) -> Iterator[AdapterBeside]:
    """The adapter that settings train, where they set its alpha or its rank."""
    lora = config.spec.training.lora
    if lora is None or not {ALPHA, RANK}.intersection(config.places):
        return
    place = setting_place(config, ALPHA if ALPHA in config.places else RANK)
    yield AdapterBeside(place.file, place.line, lora.lora_alpha, lora.r, lora.use_rslora)


def _adapters_of_script(module: Module) -> Iterator[AdapterBeside]:
    """The adapters of a script: of its trainer's settings, and of calls beside them."""
    for config in extract_configs(module):
        yield from _adapter_of_config(config)
    for found in training_calls(module):
        alpha, rank = (parse_limit_number(found.values.get(one)) for one in (ALPHA, "r"))
        if alpha is None or rank is None or rank < 1:
            continue
        line, _ = module.place(found.nodes[ALPHA])
        stabilised = module.flow.value(found.call.keywords.get("use_rslora")) is True
        path = module.home(found.call.node).path
        yield AdapterBeside(path, line, alpha, int(rank), stabilised)


def _saved_adapter(file: Path) -> Iterator[AdapterBeside]:
    """The adapter that a run saved."""
    document = read_document(file).value
    if not isinstance(document, dict):
        return
    alpha, rank = (parse_limit_number(document.get(one)) for one in ("lora_alpha", "r"))
    if alpha is not None and rank is not None and rank >= 1:
        stabilised = document.get("use_rslora") is True
        yield AdapterBeside(str(file), 0, alpha, int(rank), stabilised)
