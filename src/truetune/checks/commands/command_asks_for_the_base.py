"""Requests name the base model, although the server has the adapter under another name.

## What it does
Reads the model names in commands that send requests to a server: `lm_eval` with a model at an address (`--model
local-chat-completions --model_args model=NAME`), JSON that `curl` posts (`"model": "NAME"`), and `ollama run NAME`. It
compares them with the servers of the project: vLLM with `--lora-modules NAME=FOLDER`, SGLang with `--lora-paths`,
Modelfiles with an ADAPTER. It does not fire if a command in the file also names the adapter.

## Why it is bad
The server only uses the adapter for requests that name it. It silently answers all others with the base model, so the
scores are those of the base.

## Example
```bash
vllm serve some/base --enable-lora --lora-modules support=out/final --port 8000 &
lm_eval --model local-completions --model_args model=some/base,base_url=http://localhost:8000/v1 --tasks gsm8k
```

## Use instead
```bash
vllm serve some/base --enable-lora --lora-modules support=out/final --port 8000 &
lm_eval --model local-completions --model_args model=support,base_url=http://localhost:8000/v1 --tasks gsm8k
```

## Fix safety
There is no automatic fix: the base may be queried on purpose, to compare it with the adapter.

## References
- vLLM documentation, "LoRA Adapters" (requests name the adapter as their model)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.find_servers_with_base_and_adapter import find_adapter_servers_of_project
from truetune.checks.findings import Finding
from truetune.checks.read_evaluation_harness_commands import find_harness_runs
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import (
    CommandFile,
    last_option,
    variables_set_once_unconditionally,
)

POSTED_MODEL = re.compile(
    r"(?:[\"']model\\?[\"']|(?<=[{,\s])model)\s*:\s*\\?[\"'](?:'\"?|\")?([^\"'\\\s]+)"
)
"""The name in the body of a request, also with quotes that the shell needs, or as jq writes it"""
POSTS = re.compile(r"\b(?:curl|wget|http|xh)\b")
VARIABLE = re.compile(r"\$\{?(\w+)\}?")
OF_ADDRESS = ("local-", "openai-")
"""How the harness calls models behind an address"""


class Request(NamedTuple):
    """A command, or a line of one, that asks a server for a model."""

    line: int
    model: str
    text: str


class CommandAsksForTheBase(CommandRule):
    code = "CMD050"
    fault = Fault.BASE_ANSWERS_INSTEAD_OF_TUNED_MODEL
    symptoms = ("nothing-is-learned", "good-here-bad-there")
    severity = "warning"
    what = "commands that ask a server for a model"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[Request]:
        """The places that the rule looks at: the commands that ask a server for a model."""
        yield from _harness_runs_asking_a_server(file)
        yield from _posted_requests(file)
        for command in file.commands:
            words = command.words_following("ollama", "run")
            if words and not words[0].startswith("-"):
                yield Request(command.line, words[0], command.text.strip())

    def findings(self) -> Iterator[Finding]:
        requests = list(self.examined_places(self.subject))
        asked = {request.model for request in requests}
        if not requests or any("$" in name for name in asked):
            return
        servers = list(find_adapter_servers_of_project(Path(self.subject.path)))
        if any(server.adapters & asked for server in servers):
            return
        for server in servers:
            request = next((one for one in requests if one.model in server.bases), None)
            if request is None or not server.adapters:
                continue
            adapter = min(server.adapters)
            yield self.finding(
                f"the request names the base model {request.model}, but the server has the adapter as {adapter}: the"
                " base answers",
                f"name the adapter in the request: model {adapter}",
                cases=[self.case_at(request.line, request.text), server.case],
            )
            return


def _harness_runs_asking_a_server(file: CommandFile) -> Iterator[Request]:
    """Runs of lm_eval that ask a server."""
    for run in find_harness_runs(file):
        kind = last_option(run.options, "--model", "-m") or ""
        name = run.model_argument("model")
        if kind.startswith(OF_ADDRESS) and name is not None:
            yield Request(run.command.line, name, run.model_with_arguments_as_written)


def _posted_requests(file: CommandFile) -> Iterator[Request]:
    """Bodies of posted requests that name a model, also those in a here-document, which are no
    commands.
    """
    if not POSTS.search(file.text):
        return
    variables = variables_set_once_unconditionally(file.text)
    for number, line in enumerate(file.text.splitlines(), 1):
        for match in POSTED_MODEL.finditer(line):
            name = VARIABLE.sub(lambda one: variables.get(one[1], one[0]), match[1])
            yield Request(number, name, line.strip())
