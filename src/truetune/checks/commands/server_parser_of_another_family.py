"""A server reads tool calls or reasoning in another model's format.

## What it does
Compares `--tool-call-parser` and `--reasoning-parser` of vLLM and SGLang with the family that the served model's name
tells (Qwen2.5, Qwen3, Llama 3.1 to 3.3, Llama 4, Mistral, DeepSeek V3, gpt-oss). Each parser looks for the marks of
some families. It skips names that say more than the family, such as a tuning for calls in a format of its own (Hermes,
xLAM), releases whose format is not known, and parsers that it does not know.

## Why it is bad
The server starts and answers. The calls stay in the text of the answer and `tool_calls` is empty, so an agent never
calls a tool; reasoning stays in front of the answer, or the whole answer counts as reasoning.

## Example
```bash
vllm serve ./llama-3.1-8b-instruct-tools --enable-auto-tool-choice --tool-call-parser hermes
```

## Use instead
```bash
vllm serve ./llama-3.1-8b-instruct-tools --enable-auto-tool-choice --tool-call-parser llama3_json
```

## Fix safety
Only how answers are read changes. If you trained calls in another form, use the parser of that form.

## References
- vLLM documentation, "Tool Calling" and "Reasoning Outputs" (parsers by model); SGLang documentation, "Tool Parser"
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import CommandRule
from truetune.checks.vllm_server_commands import find_vllm_server_commands
from truetune.parsing.shell_commands import CommandFile, ShellCommand, last_option


class ModelFamily(NamedTuple):
    """Models that write tool calls and reasoning in one form."""

    name: str
    pattern: re.Pattern[str]
    """Of the last part of a name, in small letters"""
    tool_parsers: tuple[str, ...]
    """Those that read its calls, vLLM's first; empty: not judged"""
    reasoning_parsers: tuple[str, ...]


# From the lists of models in the documentation of vLLM 0.11 and SGLang 0.5.
FAMILIES = (
    ModelFamily(
        "Qwen3-Coder",
        re.compile(r"qwen-?3-coder"),
        ("qwen3_coder", "qwen3_xml", "qwen3coder"),
        (),
    ),
    ModelFamily(
        "Qwen2.5",
        re.compile(r"qwen-?2(\.5)?(?![\d.])(?!.*(?:vl|omni))"),
        ("hermes", "qwen25", "qwen"),
        (),
    ),
    ModelFamily(
        "Qwen3",
        re.compile(r"qwen-?3-(?:\d+(?:\.\d+)?b)(?!.*(?:vl|omni|next))"),
        ("hermes", "qwen25", "qwen"),
        ("qwen3", "deepseek_r1", "deepseek-r1", "qwen3-thinking"),
    ),
    ModelFamily(
        "Llama 3.1 to 3.3",
        re.compile(r"llama-?3[._-][123](?![0-9]*b)"),
        ("llama3_json", "llama3", "pythonic", "llama4_pythonic", "llama4_json"),
        (),
    ),
    ModelFamily(
        "Llama 4",
        re.compile(r"llama-?4-(?:scout|maverick)"),
        ("llama4_pythonic", "pythonic", "llama4_json", "llama3_json", "llama4"),
        (),
    ),
    ModelFamily(
        "Mistral",
        re.compile(r"(?:mistral|mixtral|ministral)-(?:\d|small|large|nemo|medium)"),
        ("mistral",),
        (),
    ),
    ModelFamily(
        "DeepSeek V3",
        re.compile(r"deepseek-v3"),
        ("deepseek_v3", "deepseek_v31", "deepseek_v32", "deepseekv3", "deepseekv31", "deepseekv32"),
        (),
    ),
    ModelFamily(
        "gpt-oss", re.compile(r"gpt-oss-\d+b"), ("openai", "gpt-oss"), ("openai_gptoss", "gpt-oss")
    ),
)
KNOWN_TOOL_PARSERS = frozenset(
    (
        "granite",
        "granite-20b-fc",
        "internlm",
        "jamba",
        "kimi_k2",
        "glm45",
        "minimax",
        "phi4_mini_json",
    )
).union(*(family.tool_parsers for family in FAMILIES))
KNOWN_REASONING_PARSERS = frozenset(
    (
        "granite",
        "glm45",
        "mistral",
        "hunyuan_a13b",
        "step3",
        "deepseek_v3",
        "deepseek-v3",
        "kimi",
        "kimi_k2",
    )
).union(*(family.reasoning_parsers for family in FAMILIES))
OTHER_FORM = re.compile(
    r"hermes|xlam|toolace|functionary|watt|groq|gorilla|distill|nemotron|r1|coder-2"
)
"""In names of models that were tuned for calls or reasoning in a form of their own"""


class ParserOfServer(NamedTuple):
    """A server's option that says in which form answers are read."""

    command: ShellCommand
    model: str
    option: str
    parser: str


class ServerParserOfAnotherFamily(CommandRule):
    code = "CMD240"
    fault = Fault.MODEL_ANSWERS_NOT_IN_REQUIRED_FORM
    symptoms = ("good-here-bad-there",)
    severity = "warning"
    what = "servers with a parser of tool calls or reasoning"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[ParserOfServer]:
        """The parsers that servers are told to use."""
        for command, options in _servers_with_options(file):
            first = options[0] if options and not options[0].startswith("-") else None
            model = last_option(options, "--model", "--model-path") or first
            for option in ("--tool-call-parser", "--reasoning-parser"):
                parser = last_option(options, option)
                if model and parser:
                    yield ParserOfServer(command, model, option, parser)

    def findings(self) -> Iterator[Finding]:
        for server in self.examined_places(self.subject):
            family = _family_of_model(server.model)
            if family is None:
                continue
            is_tool = server.option == "--tool-call-parser"
            fitting = family.tool_parsers if is_tool else family.reasoning_parsers
            known = KNOWN_TOOL_PARSERS if is_tool else KNOWN_REASONING_PARSERS
            if not fitting or server.parser in fitting or server.parser not in known:
                continue
            what = "tool calls" if is_tool else "reasoning"
            yield self.finding(
                f"{server.option} {server.parser} reads another model's format: {server.model} belongs to"
                f" {family.name}, and its {what} stay in the text of the answer",
                f"set {server.option} to {_words_of_alternatives(fitting)}",
                cases=[self.case_of_command(server.command, f"{server.option} {server.parser}")],
            )


def _words_of_alternatives(parsers: tuple[str, ...]) -> str:
    """The parser of vLLM, and that of SGLang where it has another name."""
    return " or ".join(parsers[:2])


def _family_of_model(model: str) -> ModelFamily | None:
    """The family that the last part of a model's name tells; None where it tells none, or a form of its own."""
    name = model.rstrip("/").rpartition("/")[2].lower().replace("_", "-")
    if "$" in name or OTHER_FORM.search(name):
        return None
    return next((family for family in FAMILIES if family.pattern.search(name)), None)


def _servers_with_options(file: CommandFile) -> Iterator[tuple[ShellCommand, tuple[str, ...]]]:
    """The commands that start vLLM or SGLang, with their options."""
    for server in find_vllm_server_commands(file):
        yield server.command, server.options
    for command in file.commands:
        options = command.words_following("-m", "sglang.launch_server")
        if options is not None:
            yield command, options
