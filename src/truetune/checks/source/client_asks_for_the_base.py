"""A client asks a server for the base by its name, and the server has an adapter under another name.

## What it does
Compares the `model` of requests (`client.chat.completions.create(model=...)`, a `"model"` beside messages or a prompt)
with the names that a vLLM server of the same project gives: commands with `--enable-lora` and
`--lora-modules NAME=FOLDER`, and with the Modelfiles of the folder that put an ADAPTER on a model for Ollama. It speaks
where requests name the server's model and none names an adapter.

## Why it is bad
The server loads the adapter and uses it only for requests that name it. All others are answered by the base, without a
word: the training seems to have had no effect.

## Example
```python
# serve.sh: vllm serve some/base --enable-lora --lora-modules support=out/final
from openai import OpenAI

client = OpenAI(base_url="http://localhost:8000/v1", api_key="none")
messages = [{"role": "user", "content": "Is it open today?"}]
print(client.chat.completions.create(model="some/base", messages=messages))
```

## Use instead
```python
# serve.sh: vllm serve some/base --enable-lora --lora-modules support=out/final
from openai import OpenAI

client = OpenAI(base_url="http://localhost:8000/v1", api_key="none")
messages = [{"role": "user", "content": "Is it open today?"}]
print(client.chat.completions.create(model="support", messages=messages))
```

## Fix safety
There is no automatic fix: the base may be asked on purpose, to compare it with the adapter.

## References
- vLLM documentation, "LoRA Adapters" (requests name the adapter as their model); vllm-project/vllm#6250
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes import case_at
from truetune.checks.source.evidence.listed_models import first_listed_models
from truetune.checks.source.evidence.served_model_folders import (
    requested_models,
    served_names,
    servers_around,
)
from truetune.checks.vllm_server_commands import VllmServerCommand, adapters_by_served_name
from truetune.errors import DataError, TruetuneError
from truetune.parsing.read_modelfile import read_modelfile
from truetune.parsing.shell_commands import is_command_file, last_option, read_commands
from truetune.settings.stacks.find_config_consumer import files_around
from truetune.source.module import Module

FIRST_LISTED = "models.list().data[0]"
"""Stands for a name that is the first of the server's list, whatever it is"""
OLLAMA = ("ollama.chat", "ollama.generate")


class AdapterServer(NamedTuple):
    """A server that has adapters."""

    case: Case
    """The command, or the line of a Modelfile"""
    bases: frozenset[str]
    """Names under which the base answers"""
    adapters: frozenset[str]
    lists_base_first: bool = False
    """Does its list of models begin with the base, as vLLM's does?"""


def _adapter_servers(module: Module) -> Iterator[AdapterServer]:
    """The servers with adapters that commands around a file start."""
    for path, server in servers_around(module):
        adapters = frozenset(adapters_by_served_name(server))
        if adapters:
            command = server.command
            case = Case(command.text.strip(), file=path, line=command.line)
            bases = _base_names(server)
            yield AdapterServer(case, bases, adapters, lists_base_first=bool(bases))


def _ollama_models(module: Module) -> Iterator[AdapterServer]:
    """The models with an adapter that Modelfiles of the folder make for Ollama."""
    folder = Path(module.path).parent
    try:
        files = sorted(path for path in folder.iterdir() if "odelfile" in path.name)
    except OSError:
        return
    for path in files:
        try:
            modelfile = read_modelfile(path)
        except TruetuneError:
            continue
        base, adapter = modelfile.last("from"), modelfile.last("adapter")
        if base is not None and adapter is not None:
            names = frozenset(_names_created(module, path.name))
            case = Case(f"ADAPTER {adapter.value}", file=str(path), line=adapter.line)
            # Without a tag, Ollama takes `latest`.
            bases = {base.value, base.value.removesuffix(":latest")}
            yield AdapterServer(case, frozenset(bases), names)


def _names_created(module: Module, modelfile: str) -> Iterator[str]:
    """The names under which commands around a file make a model of a Modelfile: `ollama create NAME -f Modelfile`."""
    for path in files_around(Path(module.path)):
        if not is_command_file(path):
            continue
        try:
            commands = read_commands(path).commands
        except DataError:
            continue
        for command in commands:
            words = command.behind("ollama", "create")
            if words and (Path(last_option(words, "-f") or "Modelfile").name == modelfile):
                yield words[0]


def _requested_models(module: Module) -> Iterator[ast.expr]:
    """The names of models in requests to a server, and in calls of Ollama's client."""
    yield from requested_models(module)
    for call in module.calls(*OLLAMA):
        named = call.argument(0, "model")
        if named is not None:
            yield named


def _base_names(server: VllmServerCommand) -> frozenset[str]:
    """The names of the server's own model: `--served-model-name`, else that which it loads."""
    return frozenset(served_names(server)) - frozenset(adapters_by_served_name(server))


def _request_of_base(
    server: AdapterServer, named: list[tuple[ast.expr, object]]
) -> tuple[ast.expr, object] | None:
    """The first request that names a server's base, with the name; None where none does."""
    names = {*server.bases, FIRST_LISTED} if server.lists_base_first else server.bases
    return next((request for request in named if request[1] in names), None)


class ClientAsksForTheBase(SourceRule):
    code = "SRC035"
    severity = "warning"
    looks_at = CodePlaces("models that requests name", _requested_models)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        listed = first_listed_models(module)
        named = [
            (node, FIRST_LISTED if node in listed else module.flow.value(node))
            for node in _requested_models(module)
        ]
        asked = {name for _, name in named if isinstance(name, str)}
        if not asked or len(asked) < len({ast.unparse(node) for node, _ in named}):
            return  # a name that only the program knows may be that of an adapter
        servers = [*_adapter_servers(module), *_ollama_models(module)]
        # A file that asks for the adapter as well compares the two on purpose.
        if any(server.adapters & asked for server in servers):
            return
        for server in servers:
            request = _request_of_base(server, named)
            if request is not None:
                # One server is enough: a second one says the same of the same requests.
                yield self._finding(server, *request)
                return

    def _finding(self, one: AdapterServer, node: ast.expr, asked: object) -> Finding:
        """The finding on the first request that names the base of a server with adapters."""
        module = self.subject
        if not one.adapters:
            return self.finding(
                f"requests name the base {asked}, and the adapter is part of another model, which the Modelfile makes",
                "ask for the model that ollama create makes of the Modelfile",
                cases=[case_at(module, node), one.case],
            )
        base = (
            f"requests name the first model that the server lists, which is its base {min(one.bases)}"
            if asked == FIRST_LISTED
            else f"requests name the base {asked}"
        )
        adapters = ", ".join(sorted(one.adapters))
        return self.finding(
            f"{base}, and the server has the adapter {adapters} under that name: it answers none of them",
            f'ask for the adapter: model="{min(one.adapters)}"',
            cases=[case_at(module, node), one.case],
        )
