"""Finds which folders answer under the model names of requests: those that vLLM servers of the same
project give them.

A server that is started with a chat template of its own is left out: what its prompts look like is
not seen here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.source.evidence.possible_values_of_expressions import possible_texts
from truetune.checks.vllm_server_commands import (
    VllmServerCommand,
    adapters_by_served_name,
    find_vllm_server_commands,
)
from truetune.errors import DataError
from truetune.parsing.shell_commands import is_command_file, last_option, read_command_file
from truetune.settings.stacks.find_who_reads_config_or_starts_script import (
    scripts_commands_and_readmes_around,
)
from truetune.source.parsed_source_file import Module

CALLS = ("completions.create", "completions.parse", "completions.stream", "responses.create")
BESIDE = frozenset(("messages", "prompt", "input"))
"""Keys beside `model` in the body of a request"""


def model_names_in_requests(module: Module) -> Iterator[ast.expr]:
    """The names of models in requests."""
    for call in module.methods("create", "parse", "stream"):
        named = call.keywords.get("model")
        if named is not None and ast.unparse(call.node.func).endswith(CALLS):
            yield named
    for node in module.nodes(ast.Dict):
        entries = {
            key.value: value
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant)
        }
        if "model" in entries and not BESIDE.isdisjoint(entries):
            yield entries["model"]
    for call in module.calls("dict"):
        if "model" in call.keywords and not BESIDE.isdisjoint(call.keywords):
            yield call.keywords["model"]


def vllm_servers_around(module: Module) -> Iterator[tuple[str, VllmServerCommand]]:
    """The vLLM servers that commands around a script start: each server with the path of the file
    whose commands start it.
    """
    return vllm_servers_around_path(Path(module.path))


def vllm_servers_around_path(around: Path) -> Iterator[tuple[str, VllmServerCommand]]:
    """The vLLM servers that commands around any file of a project start, each with the path of its
    commands.
    """
    for path in scripts_commands_and_readmes_around(around):
        if not is_command_file(path):
            continue
        try:
            file = read_command_file(path)
        except DataError:
            continue  # who looks at the commands says what is wrong with them
        for server in find_vllm_server_commands(file):
            yield str(path), server


def folders_or_models_by_served_name(server: VllmServerCommand) -> dict[str, str]:
    """Name -> folder or model of all that a server answers under."""
    first = server.options[0] if server.options and server.options[0][:1] != "-" else None
    model = last_option(server.options, "--model") or first
    name = last_option(server.options, "--served-model-name") or model
    own = {name: model} if name and model else {}
    return {**own, **adapters_by_served_name(server)}


def folders_answering_requests_of_file(module: Module) -> frozenset[str]:
    """The folders that answer the requests of a file; empty where the server around it is not one."""
    requested = list(model_names_in_requests(module))
    servers = [server for _, server in vllm_servers_around(module)] if requested else []
    if len(servers) != 1 or last_option(servers[0].options, "--chat-template"):
        return frozenset()
    folders = folders_or_models_by_served_name(servers[0])
    names = {text for node in requested for text in possible_texts(module, node)}
    if not names:
        # Requests whose name only the program knows go to the one adapter, if there is one.
        adapters = adapters_by_served_name(servers[0])
        return frozenset(adapters.values()) if len(adapters) == 1 else frozenset()
    return frozenset(folders[name] for name in names if name in folders)
