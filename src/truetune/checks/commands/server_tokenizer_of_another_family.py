"""A server uses the tokenizer of another model family.

## What it does
Compares vLLM's `--tokenizer` and SGLang's `--tokenizer-path` with the model that the same command serves, by the
vocabularies of published models: by the model's name, or else by the base that config.json or adapter_config.json in
its folder names. Unknown names are not checked.

## Why it is bad
A token id means another piece of text to the model than to the tokenizer: the model reads noise, and its answers decode
to noise.

## Example
```bash
vllm serve mistralai/Mistral-7B-Instruct-v0.3 --tokenizer meta-llama/Llama-2-7b-hf
```

## Use instead
```bash
vllm serve mistralai/Mistral-7B-Instruct-v0.3
```

## Fix safety
Safe: without the option, the server uses the tokenizer in the model's folder.

## References
- vLLM documentation, "Engine Arguments" (`--tokenizer`); SGLang documentation, "Server Arguments" (`--tokenizer-path`)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import CommandRule
from truetune.checks.source.evidence.model_folder_settings import read_folder_settings
from truetune.checks.source.evidence.shared_vocabularies import vocabulary_group
from truetune.checks.vllm_server_commands import (
    find_vllm_server_commands,
    model_of_server,
)
from truetune.parsing.shell_commands import CommandFile, ShellCommand, last_option


class ServedTokenizer(NamedTuple):
    """A command that serves a model by a tokenizer of another name."""

    command: ShellCommand
    option: str
    tokenizer: str
    model: str
    """Its name, or its folder on this machine"""


def _served_tokenizers(file: CommandFile) -> Iterator[ServedTokenizer]:
    """The servers of a file that are given a tokenizer."""
    for server in find_vllm_server_commands(file):
        tokenizer = last_option(server.options, "--tokenizer")
        model = model_of_server(server)
        if tokenizer and model:
            yield ServedTokenizer(server.command, "--tokenizer", tokenizer, model)
    for command in file.commands:
        options = command.words_following("-m", "sglang.launch_server")
        tokenizer = last_option(options, "--tokenizer-path") if options else None
        model = last_option(options, "--model-path", "--model") if options else None
        if tokenizer and model:
            yield ServedTokenizer(command, "--tokenizer-path", tokenizer, model)


class ServerTokenizerOfAnotherFamily(CommandRule):
    code = "CMD154"
    fault = Fault.TOKENIZER_OF_ANOTHER_MODEL
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "error"
    what = "servers that are given a tokenizer"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[ServedTokenizer]:
        """The places that the rule looks at: the servers that are given a tokenizer."""
        yield from _served_tokenizers(file)

    def findings(self) -> Iterator[Finding]:
        for served in self.examined_places(self.subject):
            base = _published_base_name(Path(self.subject.path).parent, served.model)
            own, given = vocabulary_group(base), vocabulary_group(served.tokenizer)
            if own is None or given is None or own == given:
                continue
            whose = served.model if base == served.model else f"{served.model} ({base})"
            yield self.finding(
                f"{served.option} {served.tokenizer} has the vocabulary of {given}, but the model {whose} has that"
                f" of {own}: token ids mean other text, so answers are noise",
                f"remove {served.option}, so that the server uses the tokenizer in the model's folder",
                cases=[self.case_of_command(served.command, f"{served.option} {served.tokenizer}")],
            )


def _published_base_name(here: Path, model: str) -> str:
    """The published model that a folder was made of, as its files name it; else the name as it stands."""
    folder = here / model
    for file, key in (
        ("adapter_config.json", "base_model_name_or_path"),
        ("config.json", "_name_or_path"),
    ):
        name = read_folder_settings(folder / file).get(key)
        if isinstance(name, str) and name:
            return name
    return model
