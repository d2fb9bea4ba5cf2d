"""Finds the servers of a project that have an adapter beside their base, and the names under which
both answer.

vLLM and SGLang are started by commands (shell scripts, job files, compose files); Ollama makes a model of a Modelfile.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.findings import Case
from truetune.checks.sglang_server_commands import sglang_server
from truetune.checks.source.evidence.served_model_folders import (
    folders_or_models_by_served_name,
    vllm_servers_around_path,
)
from truetune.checks.vllm_server_commands import VllmServerCommand, adapters_by_served_name
from truetune.errors import DataError, TruetuneError
from truetune.parsing.read_ollama_modelfile import read_modelfile
from truetune.parsing.shell_commands import (
    CommandFile,
    ShellCommand,
    is_command_file,
    last_option,
    read_command_file,
)
from truetune.settings.stacks.find_who_reads_config_or_starts_script import (
    scripts_commands_and_readmes_around,
)


class AdapterServer(NamedTuple):
    """A server that has adapters."""

    case: Case
    """The command, or the line of a Modelfile"""
    bases: frozenset[str]
    """Names under which the base answers"""
    adapters: frozenset[str]
    lists_base_first: bool = False
    """Does its list of models begin with the base, as vLLM's does?"""


def find_adapter_servers_of_project(path: Path) -> Iterator[AdapterServer]:
    """All servers with adapters (vLLM, SGLang, Ollama) in the project that a file belongs to."""
    yield from _vllm_servers_with_adapters(path)
    yield from _sglang_servers_with_adapters(path)
    yield from _ollama_models_with_adapters(path)


def shell_commands_of_project(path: Path) -> Iterator[ShellCommand]:
    """All shell commands in the project that a file belongs to."""
    for file in command_files_of_project(path):
        yield from file.commands


def command_files_of_project(path: Path) -> Iterator[CommandFile]:
    """The files of commands in the project that a file belongs to, without those that can't be
    read.
    """
    for file in scripts_commands_and_readmes_around(path):
        if not is_command_file(file):
            continue
        try:
            yield read_command_file(file)
        except DataError:
            continue


def _vllm_servers_with_adapters(path: Path) -> Iterator[AdapterServer]:
    """The vLLM servers with adapters that the commands of the file's project start."""
    for file, server in vllm_servers_around_path(path):
        adapters = frozenset(adapters_by_served_name(server))
        if adapters:
            command = server.command
            case = Case(command.text.strip(), file=file, line=command.line)
            bases = _served_names_of_base(server)
            yield AdapterServer(case, bases, adapters, lists_base_first=bool(bases))


def _sglang_servers_with_adapters(path: Path) -> Iterator[AdapterServer]:
    """The SGLang servers with `--lora-paths` in the file's project; requests name an adapter as
    `BASE:NAME`.
    """
    for file in command_files_of_project(path):
        for command in file.commands:
            server = sglang_server(command)
            if server is None or not server.adapters:
                continue
            name, names = server.served_name, list(server.adapters)
            adapters = frozenset((*names, *(f"{name}:{one}" for one in names)))
            case = Case(command.text.strip(), file=file.path, line=command.line)
            yield AdapterServer(case, frozenset((name,)), adapters)


def _ollama_models_with_adapters(path: Path) -> Iterator[AdapterServer]:
    """The models that Ollama makes of a base and an adapter, by the Modelfiles beside a file."""
    try:
        files = sorted(file for file in path.parent.iterdir() if "odelfile" in file.name)
    except OSError:
        return
    for file in files:
        try:
            modelfile = read_modelfile(file)
        except TruetuneError:
            continue
        base, adapter = modelfile.last("from"), modelfile.last("adapter")
        if base is not None and adapter is not None:
            names = frozenset(_ollama_names_of_modelfile(path, file.name))
            case = Case(f"ADAPTER {adapter.value}", file=str(file), line=adapter.line)
            # Without a tag, Ollama takes `latest`.
            bases = {base.value, base.value.removesuffix(":latest")}
            yield AdapterServer(case, frozenset(bases), names)


def _ollama_names_of_modelfile(path: Path, modelfile: str) -> Iterator[str]:
    """The names of the Ollama models that the project's commands make of a Modelfile: `ollama
    create NAME -f Modelfile`.
    """
    for command in shell_commands_of_project(path):
        words = command.words_following("ollama", "create")
        if words and (Path(last_option(words, "-f") or "Modelfile").name == modelfile):
            yield words[0]


def _served_names_of_base(server: VllmServerCommand) -> frozenset[str]:
    """The names under which a vLLM server answers as its base: `--served-model-name`, else the
    model that it loads.
    """
    return frozenset(folders_or_models_by_served_name(server)) - frozenset(
        adapters_by_served_name(server)
    )
