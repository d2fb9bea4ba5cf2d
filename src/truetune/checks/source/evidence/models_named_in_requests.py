"""Finds which model the requests of a script to a server name, by a symbolic run: clients of
OpenAI, Ollama, LiteLLM, and plain posts.

How it works: the run gives the value of `model` in each request. An option of the command line or a
variable of the environment is what the project's own commands, compose files and `.env` give it,
else its default.

The trade-off: commands of the whole project count, so an option that two commands set to different
names is both.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from truetune.checks.find_servers_with_base_and_adapter import command_files_of_project
from truetune.parsing.input_limits import SETTINGS, InputLimitError
from truetune.parsing.read_files_within_limits import read_bytes_within_limit
from truetune.parsing.shell_commands import ShellCommand, last_option
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Choice,
    Mapping,
    Option,
    Result,
    Value,
)

OPENAI_METHODS = ("create", "parse", "stream")
OPENAI_PARTS = ("completions", "responses")
"""What the method stands behind: `client.chat.completions.create`"""
OLLAMA_CLIENTS = ("ollama.Client", "ollama.AsyncClient")
OLLAMA_METHODS = ("chat", "generate")
FUNCTIONS = {
    "ollama.chat": "model",
    "ollama.generate": "model",
    "litellm.completion": "model",
    "litellm.acompletion": "model",
    "litellm.batch_completion": "model",
    "*.ChatOpenAI": "model",
    "*.ChatOllama": "model",
    "*.OpenAILike": "model",
}
"""Function or class -> its argument that names the model, which is its first"""
MODEL_ALIASES = ("model_name",)
PROVIDERS = re.compile(r"^(?:hosted_vllm|openai|ollama|ollama_chat|litellm_proxy)/")
"""What LiteLLM has in front of a server's own name"""
BESIDE = frozenset(("messages", "prompt", "input"))
"""Keys beside `model` in the body of a request"""
ENVIRONMENT_FILE = ".env"
SETS_VARIABLE = re.compile(r"^[^\S\n]*(?:export\s+)?([A-Za-z_]\w*)=[\"']?([^\s\"'#]+)", re.M)


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One place that asks a server for a model."""

    node: ast.AST
    names: frozenset[str]
    """What it may ask for; empty where it is not known"""

    def with_names(self, names: frozenset[str]) -> ModelRequest:
        """A copy of the request with other model names."""
        return replace(self, names=names)


def model_requests(module: Module) -> Iterator[ModelRequest]:
    """The requests of a file, each place once."""
    names_by_node: dict[ast.AST, set[str]] = {}
    unknown: set[ast.AST] = set()
    project_option_values = _ProjectOptionValues(module)
    for trace in traces_of_scripts_that_reach_file(module):
        for call in trace.all_calls:
            if call.home.path != module.path:
                continue
            value = _requested_model(call)
            node = None if value is None else _node_naming_model(call)
            if value is None or node is None:
                continue
            names = project_option_values.model_names_of_value(value)
            if not names:
                unknown.add(node)
            names_by_node.setdefault(node, set()).update(names)
    for node, found in names_by_node.items():
        yield ModelRequest(node, frozenset() if node in unknown else frozenset(found))


def _requested_model(call: CallEvent) -> Value | None:
    """What a call asks a server for; None for any other call."""
    body = call.keywords.get("json")
    if isinstance(body, Mapping) and not BESIDE.isdisjoint(body.entries):
        return body.entries.get("model")
    for pattern, name in FUNCTIONS.items():
        if call.named(pattern):
            aliases = (call.keywords.get(alias) for alias in MODEL_ALIASES)
            return call.argument(0, name) or next((one for one in aliases if one), None)
    if _is_client_call(call):
        return call.keywords.get("model")
    return None


def _is_client_call(call: CallEvent) -> bool:
    """Is it a method of a client by which a model is asked?"""
    if call.method in OPENAI_METHODS and isinstance(call.receiver, Attribute):
        return call.receiver.name in OPENAI_PARTS
    if call.method in OLLAMA_METHODS and isinstance(call.receiver, Result):
        return call.receiver.call.named(*OLLAMA_CLIENTS)
    return False


def _node_naming_model(call: CallEvent) -> ast.AST | None:
    """The expression in a request that names the model; the call where it has none, as behind
    `**settings`.
    """
    if not isinstance(call.node, ast.Call):
        return None
    for keyword in call.node.keywords:
        if keyword.arg in ("model", *MODEL_ALIASES):
            return keyword.value
        entries = keyword.value if keyword.arg == "json" else None
        for key, value in (
            zip(entries.keys, entries.values, strict=True) if isinstance(entries, ast.Dict) else ()
        ):
            if isinstance(key, ast.Constant) and key.value == "model":
                return value
    return call.node


class _ProjectOptionValues:
    """What the project gives to options and variables of a script. Files are read when the first
    one is asked for.
    """

    def __init__(self, module: Module) -> None:
        self._path = Path(module.path)
        self._commands: list[ShellCommand] | None = None
        self._variables: dict[str, set[str]] = {}

    def model_names_of_value(self, value: Value) -> set[str]:
        """The names of models that a value may be; none where one of them is not known."""
        options = value.options if isinstance(value, Choice) else (value,)
        names: set[str] = set()
        for one in options:
            found = self._values_of_option(one.name) if isinstance(one, Option) else set()
            plain = constant_of(one)
            if not found and isinstance(plain, str):
                found = {plain}
            if not found:
                return set()
            names |= {PROVIDERS.sub("", name) for name in found}
        return names

    def _values_of_option(self, name: str) -> set[str]:
        """What commands and the environment give an option or a variable of that name."""
        if self._commands is None:
            self._read_project()
        script = self._path.name
        found = set(self._variables.get(name, ()))
        for command in self._commands or ():
            if any(word.rpartition("/")[2] == script for word in command.words):
                value = last_option(command.words, f"--{name}")
                found |= {value} if value and "$" not in value else set()
        return found

    def _read_project(self) -> None:
        """Read the commands of the project, and the variables that it sets."""
        self._commands = []
        for file in command_files_of_project(self._path):
            self._commands.extend(file.commands)
            self._record_variables_set_in_text(file.text)
            for command in file.commands:
                for option, word in zip(command.words, command.words[1:], strict=False):
                    if option in ("-e", "--env"):
                        self._record_variables_set_in_text(word)
        self._record_variables_set_in_text(_file_text(self._path.parent / ENVIRONMENT_FILE))

    def _record_variables_set_in_text(self, text: str) -> None:
        """Keep the variables that a text sets to plain values."""
        for name, value in SETS_VARIABLE.findall(text):
            if "$" not in value:
                self._variables.setdefault(name, set()).add(value)


def _file_text(path: Path) -> str:
    """The text of a file; empty where it is not there."""
    try:
        return read_bytes_within_limit(path, SETTINGS).decode("utf-8", "replace")
    except (OSError, InputLimitError):
        return ""
