"""A client asks a server for the base by its name, and the server has an adapter under another name.

## What it does
Compares the `model` of requests (`client.chat.completions.create(model=...)`, a `"model"` beside messages or a prompt)
with the names that a vLLM server of the same project gives: commands with `--enable-lora` and
`--lora-modules NAME=FOLDER`. It speaks where requests name the server's model and none names an adapter.

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
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes import case_at
from truetune.checks.source.evidence.served_model_folders import (
    requested_models,
    served_names,
    servers_around,
)
from truetune.checks.vllm_server_commands import VllmServerCommand, adapters_by_served_name
from truetune.source.module import Module


class AdapterServer(NamedTuple):
    """A server that has adapters."""

    path: str
    server: VllmServerCommand
    bases: frozenset[str]
    """Names under which the base answers"""
    adapters: frozenset[str]


def _adapter_servers(module: Module) -> Iterator[AdapterServer]:
    """The servers with adapters that commands around a file start."""
    for path, server in servers_around(module):
        adapters = frozenset(adapters_by_served_name(server))
        if adapters:
            yield AdapterServer(path, server, _base_names(server), adapters)


def _base_names(server: VllmServerCommand) -> frozenset[str]:
    """The names of the server's own model: `--served-model-name`, else that which it loads."""
    return frozenset(served_names(server)) - frozenset(adapters_by_served_name(server))


class ClientAsksForTheBase(SourceRule):
    code = "SRC035"
    severity = "warning"
    looks_at = CodePlaces("models that requests name", requested_models)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        named = [(node, module.flow.value(node)) for node in requested_models(module)]
        asked = {name for _, name in named if isinstance(name, str)}
        if not asked or len(asked) < len({ast.unparse(node) for node, _ in named}):
            return  # a name that only the program knows may be that of an adapter
        servers = list(_adapter_servers(module))
        # A file that asks for the adapter as well compares the two on purpose.
        if any(server.adapters & asked for server in servers):
            return
        for one in servers:
            node = next((node for node, name in named if name in one.bases), None)
            if node is not None:
                # One server is enough: a second one says the same of the same requests.
                yield self._finding(one, node)
                return

    def _finding(self, one: AdapterServer, node: ast.expr) -> Finding:
        """The finding on the first request that names the base of a server with adapters."""
        module = self.subject
        adapters = ", ".join(sorted(one.adapters))
        command = one.server.command
        return self.finding(
            f"requests name the base {module.flow.value(node)}, and the server has the adapter"
            f" {adapters} under that name: it answers none of them",
            f'ask for the adapter: model="{min(one.adapters)}"',
            cases=[
                case_at(module, node),
                Case(command.text.strip(), file=one.path, line=command.line),
            ],
        )
