"""Settings that decide how much of the machine's memory a load of a model takes: who reads the
weights, and how much memory the job asked for.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from truetune.checks.job_gpus_and_processes import find_launches
from truetune.checks.node_rendezvous import node_count_of_job
from truetune.errors import TruetuneError
from truetune.logs.facts_in_files_beside_log import (
    HOST_GIB,
    LOADED_BY_EVERY_PROCESS,
    MEMORY_NOT_ASKED,
    MODEL_GIB,
    NODES,
    PROCESSES,
    SettingBeside,
)
from truetune.memory.matrices_and_parameters_from_config import parse_architecture
from truetune.memory.published_model_shapes import published_config
from truetune.parsing.shell_commands import (
    CommandFile,
    ShellCommand,
    docker_run_words,
    last_option,
)
from truetune.settings.config import Config
from truetune.settings.located_document import parse_located_document
from truetune.source.parsed_source_file import Module

EFFICIENT_LOADING = ("fsdp_cpu_ram_efficient_loading", "cpu_ram_efficient_loading")
"""The keys of accelerate and of transformers; in both it is on unless it is switched off"""
MEMORY_REQUEST = re.compile(r"(\d{1,15})([KMGT]?)i?B?", re.IGNORECASE)
GIB_OF_UNIT = {"B": 2.0**-30, "": 2.0**-10, "M": 2.0**-10, "K": 2.0**-20, "G": 1.0, "T": 1024.0}
"""Slurm counts in MiB where it is given no unit, and Docker in bytes"""
BYTES_OF_WEIGHT = 2
"""In bfloat16, the least that an unquantized model is loaded in"""
MAX_DEPTH = 4
"""Levels of a file of settings at which the key may stand"""


def efficient_loading_off_in_document(text: str, path: Path) -> Iterator[SettingBeside]:
    """Places of a YAML or JSON file that switch FSDP's RAM-efficient loading off, by which one
    process reads the weights for all.
    """
    if not any(key in text for key in EFFICIENT_LOADING):
        return
    document = parse_located_document(text, str(path))
    for keys, value in _values_with_paths(document.value, ()):
        if keys[-1] in EFFICIENT_LOADING and _is_off(value):
            spot = document.position_of_key(*keys)
            text_of_line = f"{keys[-1]}: false"
            line = spot.line if spot else 0
            yield SettingBeside(LOADED_BY_EVERY_PROCESS, True, str(path), line, text_of_line)


def _values_with_paths(value: Any, keys: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """All values of a document, each with the keys that lead to it."""
    if keys and not isinstance(value, Mapping):
        yield keys, value
    if isinstance(value, Mapping) and len(keys) < MAX_DEPTH:
        for key, inner in value.items():
            yield from _values_with_paths(inner, (*keys, key))


def _is_off(value: object) -> bool:
    """Is a switch off, as a truth value or in words?"""
    return value is False or (
        isinstance(value, str) and value.lower() in ("false", "no", "0", "off")
    )


def efficient_loading_off_in_script(module: Module) -> Iterator[SettingBeside]:
    """Places of a script that switch FSDP's RAM-efficient loading off: in a dict of settings, or as
    an argument of accelerate's plugin.
    """
    if not any(key in module.text for key in EFFICIENT_LOADING):
        return
    for node in ast.walk(module.tree):
        for key, value in _items_of_dict_or_call(node):
            if key in EFFICIENT_LOADING and _is_off(module.flow.value(value)):
                line, _ = module.place(value)
                file = module.home(value).path
                yield SettingBeside(LOADED_BY_EVERY_PROCESS, True, file, line, f"{key}: False")


def _items_of_dict_or_call(node: ast.AST) -> Iterator[tuple[object, ast.expr]]:
    """(key, value) of a dict, or of the keyword arguments of a call."""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant):
                yield key.value, value
    elif isinstance(node, ast.Call):
        yield from ((word.arg, word.value) for word in node.keywords if word.arg)


def memory_and_processes_of_job(file: CommandFile) -> Iterator[SettingBeside]:
    """The memory that a job asks for on each node, the processes that it starts there, and who loads the weights."""
    limits = [host_memory_limit_of_command(file, command) for command in file.commands]
    asked = next((limit for limit in limits if limit is not None), _memory_requested_by_job(file))
    if asked is not None:
        yield asked
    else:
        yield from _memory_left_to_slurm_default(file)
    yield from _node_count_of_job_if_several(file)
    for launch in find_launches(file):
        # One process that spreads the model over GPUs holds it once.
        if not launch.spreads_one_model:
            line = launch.command.line
            yield SettingBeside(PROCESSES, launch.processes, file.path, line, launch.setting)
    yield from _efficient_loading_off_in_commands(file)


def _node_count_of_job_if_several(file: CommandFile) -> Iterator[SettingBeside]:
    """The number of nodes that a job asks for, if it is more than one."""
    nodes = node_count_of_job(file)
    if nodes is not None and nodes > 1:
        name = "--nodes" if "--nodes" in file.requests else "-N"
        value, line = file.requests[name]
        yield SettingBeside(NODES, nodes, file.path, line, f"{name}={value}")


def _efficient_loading_off_in_commands(file: CommandFile) -> Iterator[SettingBeside]:
    """The commands that switch FSDP's RAM-efficient loading off by an option."""
    for command in file.commands:
        option = last_option(command.words, f"--{EFFICIENT_LOADING[0]}")
        if option is not None and _is_off(option):
            text = f"--{EFFICIENT_LOADING[0]} {option}"
            yield SettingBeside(LOADED_BY_EVERY_PROCESS, True, file.path, command.line, text)


def host_memory_limit_of_command(file: CommandFile, command: ShellCommand) -> SettingBeside | None:
    """The memory of the machine that a command may use: what its container gets, else what the job asks for."""
    words = docker_run_words(command)
    for number, word in enumerate(words):
        name, _, value = word.partition("=")
        if name in ("-m", "--memory"):
            value = value or "".join(words[number + 1 : number + 2])
            limit = _parse_size_gib(value, default="B")
            text = f"{name} {value}"
            return _memory_limit_at_line(limit, file, command.line, text) if limit else None
    return _memory_requested_by_job(file)


def _memory_requested_by_job(file: CommandFile) -> SettingBeside | None:
    """`#SBATCH --mem=64G`; None where a job asks for none on its node."""
    if "--mem" not in file.requests:
        return None
    value, line = file.requests["--mem"]
    limit = _parse_size_gib(value, default="")
    return _memory_limit_at_line(limit, file, line, f"--mem={value}") if limit else None


def _memory_left_to_slurm_default(file: CommandFile) -> Iterator[SettingBeside]:
    """A job of Slurm's that asks for no memory in any form, with the processors of a task."""
    if not file.requests or any(name.startswith("--mem") for name in file.requests):
        return
    name = next((one for one in ("--cpus-per-task", "-c") if one in file.requests), "")
    given, line = file.requests.get(name, ("1", 0))
    count = int(given) if given.isdecimal() else None
    if count is not None:
        text = f"{name}={given}" if name else "one processor by default"
        yield SettingBeside(MEMORY_NOT_ASKED, count, file.path, line, text)


def _parse_size_gib(value: str, *, default: str) -> float:
    """GiB of a size with a unit, such as `64G`; `default` is the unit of a plain number.

    0 if it is no size.
    """
    match = MEMORY_REQUEST.fullmatch(value.strip("\"'"))
    unit = match[2].upper() or default if match else ""
    return float(match[1]) * GIB_OF_UNIT[unit] if match else 0.0


def _memory_limit_at_line(gib: float, file: CommandFile, line: int, text: str) -> SettingBeside:
    """A limit on memory at the line that sets it."""
    return SettingBeside(HOST_GIB, gib, file.path, line, text)


def weight_size_of_published_model(config: Config) -> Iterator[SettingBeside]:
    """GiB of the weights of a config's published model at two bytes each.

    Nothing for a model that is loaded in fewer bits.
    """
    training, name = config.spec.training, config.spec.model
    if not name or training.load_in is not None:
        return
    published = published_config(name)
    if published is None:
        return
    try:
        parameters = parse_architecture(published).parameters
    except TruetuneError:
        return
    gib = round(parameters * BYTES_OF_WEIGHT / (1 << 30), 1)
    yield SettingBeside(MODEL_GIB, gib, config.path, 0, name)
