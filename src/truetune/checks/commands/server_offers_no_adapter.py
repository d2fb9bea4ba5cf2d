"""A vLLM server is given adapters, and adapters are not switched on.

## What it does
Reads the commands that start vLLM in shell scripts, job files, compose files and Dockerfiles, for `--lora-modules`
without `--enable-lora`. Silent where the command takes a file of settings, or words from outside of the script.

## Why it is bad
The server has no place for an adapter: it stops at the start, or answers every request for the adapter's name with an
error, and users ask the base instead.

## Example
```bash
vllm serve meta-llama/Llama-3.1-8B-Instruct --lora-modules support=./adapter
```

## Use instead
```bash
vllm serve meta-llama/Llama-3.1-8B-Instruct --enable-lora --lora-modules support=./adapter
```

## Fix safety
Safe. `--max-lora-rank` must not be below the adapter's `r`: it is 16 where it is not given.

## References
- vLLM documentation, "LoRA Adapters"
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from truetune.checks.findings import Finding
from truetune.checks.rule import CommandRule
from truetune.checks.vllm_server_commands import VllmServerCommand, find_vllm_server_commands
from truetune.parsing.shell_commands import CommandFile, last_option


class ServerOffersNoAdapter(CommandRule):
    code = "CMD038"
    severity = "error"
    what = "vLLM servers with adapters"

    @staticmethod
    def places(file: CommandFile) -> Iterator[VllmServerCommand]:
        for server in find_vllm_server_commands(file):
            if last_option(server.options, "--lora-modules") is not None:
                yield server

    def findings(self) -> Iterator[Finding]:
        for server in self.places(self.subject):
            if _may_enable_adapters(server.options):
                continue
            yield self.finding(
                "--lora-modules is given without --enable-lora: the server has no place for an adapter",
                "add --enable-lora, and --max-lora-rank where the adapter's r is above 16",
                cases=[self.case(server.command, "--lora-modules")],
            )


def _may_enable_adapters(options: tuple[str, ...]) -> bool:
    """Are adapters switched on, or may words from outside do so: `"$@"`, `$EXTRA`, `--config serve.yaml`?"""
    if last_option(options, "--enable-lora", "--config") is not None:
        return True
    # A variable behind an option is its value, and the first word is the model.
    return any(
        word.startswith("$") and not before.startswith("-") for before, word in pairwise(options)
    )
