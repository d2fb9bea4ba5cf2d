"""A client asks a server for the base by name, although the server has an adapter under another name.

## What it does
Runs the script symbolically, and compares the `model` of its requests (clients of OpenAI, Ollama, LiteLLM and
LangChain, or a posted `"model"` with messages or a prompt) with the names that a server of the same project offers:
vLLM with `--lora-modules NAME=FOLDER`, SGLang with `--lora-paths`, and Modelfiles that put an ADAPTER on a model for
Ollama. A name from an option or the environment is looked up in the project's commands, compose files and `.env`. It
fires if requests name the server's base model and none names an adapter.

## Why it is bad
The server uses the adapter only for requests that name it. The base answers all others, without an error, so the
training seems to have had no effect.

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
There is no automatic fix: the base may be requested on purpose, to compare it with the adapter.

## References
- vLLM documentation, "LoRA Adapters" (requests name the adapter as their model); vllm-project/vllm#6250
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.find_servers_with_base_and_adapter import (
    AdapterServer,
    find_adapter_servers_of_project,
)
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.models_named_in_requests import ModelRequest, model_requests
from truetune.checks.source.evidence.requests_for_first_listed_model import first_listed_models
from truetune.source.parsed_source_file import Module

FIRST_LISTED = "models.list().data[0]"
"""Stands for a name that is the first of the server's list, whatever it is"""


def _requests_of_file(module: Module) -> Iterator[ModelRequest]:
    """The requests of a file, those for the first model of a list by a name of their own."""
    listed = first_listed_models(module)
    for request in model_requests(module):
        if request.node in listed:
            yield request.with_names(frozenset((FIRST_LISTED,)))
        else:
            yield request


class ClientAsksForTheBase(SourceRule):
    code = "SRC035"
    fault = Fault.BASE_ANSWERS_INSTEAD_OF_TUNED_MODEL
    symptoms = ("nothing-is-learned", "good-here-bad-there")
    severity = "warning"
    looks_at = CodePlaces("models that requests name", _requests_of_file)

    def findings(self) -> Iterator[Finding]:
        """Findings on clients that ask for the base by its name, where the server has an adapter under
        another name.
        """
        module = self.subject
        requests = list(_requests_of_file(module))
        # A name that only the program knows may be that of an adapter.
        if not requests or any(not request.names for request in requests):
            return
        asked = frozenset().union(*(request.names for request in requests))
        servers = list(find_adapter_servers_of_project(Path(module.path)))
        # A file that asks for the adapter as well compares the two on purpose.
        if any(server.adapters & asked for server in servers):
            return
        for server in servers:
            bases = {*server.bases, FIRST_LISTED} if server.lists_base_first else server.bases
            for request in requests:
                named = min(request.names & bases, default=None)
                if named is not None:
                    # One server is enough: a second one says the same of the same requests.
                    yield self._finding_on_request(server, request.node, named)
                    return

    def _finding_on_request(self, one: AdapterServer, node: ast.AST, asked: str) -> Finding:
        """The finding on the first request that names the base of a server with adapters."""
        module = self.subject
        if not one.adapters:
            return self.finding(
                f"requests name the base {asked}, but the adapter is in another model, which the Modelfile builds:"
                " the base answers",
                "set model to the name that is given to `ollama create NAME -f Modelfile`",
                cases=[case_of_node(module, node), one.case],
            )
        base = (
            f"requests use the first model that the server lists, which is its base {min(one.bases)}"
            if asked == FIRST_LISTED
            else f"requests name the base {asked}"
        )
        adapters = ", ".join(sorted(one.adapters))
        return self.finding(
            f"{base}, but the server offers the adapter as {adapters}: the base answers all of them",
            f'request the adapter: model="{min(one.adapters)}"',
            cases=[case_of_node(module, node), one.case],
        )
