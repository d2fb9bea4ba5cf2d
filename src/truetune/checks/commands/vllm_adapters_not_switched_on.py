"""A vLLM server is given adapters without --enable-lora, or with too low a maximum rank.

## What it does
Reads the commands that start vLLM in shell scripts, job files, compose files and Dockerfiles, for `--lora-modules`
without `--enable-lora`, and for an adapter whose `r` is above `--max-lora-rank` (default 16), if its folder is on this
machine. It does not fire if the command uses a settings file, or words from outside the script.

## Why it is bad
The server cannot load the adapter: it stops at the start, or rejects every request that names the adapter, and users
query the base model instead.

## Example
```bash
vllm serve meta-llama/Llama-3.1-8B-Instruct --lora-modules support=./adapter
```

## Use instead
```bash
vllm serve meta-llama/Llama-3.1-8B-Instruct --enable-lora --lora-modules support=./adapter
```

## Fix safety
Safe. `--max-lora-rank` must be at least the adapter's `r`; the default is 16.

## References
- vLLM documentation, "LoRA Adapters"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import CommandRule
from truetune.checks.vllm_server_commands import (
    VllmServerCommand,
    adapters_by_served_name,
    find_vllm_server_commands,
)
from truetune.parsing.input_limits import SETTINGS
from truetune.parsing.parse_json_within_limits import read_json
from truetune.parsing.shell_commands import CommandFile, last_option, parse_digits

DEFAULT_RANK = 16
"""vLLM's --max-lora-rank where it is not given"""
ROOMS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The values that vLLM takes for it"""


class VllmAdaptersNotSwitchedOn(CommandRule):
    code = "CMD038"
    fault = Fault.BASE_ANSWERS_INSTEAD_OF_TUNED_MODEL
    symptoms = ("nothing-is-learned", "good-here-bad-there")
    severity = "error"
    what = "vLLM servers with adapters"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[VllmServerCommand]:
        """The places that the rule looks at: the vLLM servers with adapters."""
        for server in find_vllm_server_commands(file):
            if last_option(server.options, "--lora-modules") is not None:
                yield server

    def findings(self) -> Iterator[Finding]:
        for server in self.examined_places(self.subject):
            if _may_enable_adapters(server.options):
                yield from self._findings_on_oversized_rank(server)
                continue
            yield self.finding(
                "--lora-modules is given without --enable-lora: the server cannot load the adapter",
                "add --enable-lora, and --max-lora-rank if the adapter's r is above 16",
                cases=[self.case_of_command(server.command, "--lora-modules")],
            )

    def _findings_on_oversized_rank(self, server: VllmServerCommand) -> Iterator[Finding]:
        """Findings on adapters of a larger rank than the server has room for."""
        allowed = _max_rank_of_server(server.options)
        if allowed is None:
            return
        for name, place in adapters_by_served_name(server).items():
            rank = _uniform_adapter_rank(Path(self.subject.path).parent / place)
            if rank is not None and rank > allowed:
                yield self.finding(
                    (
                        f"the adapter {name} has rank {rank}, but the server accepts at most {allowed}: it rejects"
                        " the adapter"
                    ),
                    f"set --max-lora-rank {_smallest_max_rank_for(rank)}",
                    cases=[self.case_of_command(server.command, f"{name}={place}")],
                )


def _max_rank_of_server(options: tuple[str, ...]) -> int | None:
    """The largest rank that the server takes; None where words from outside may say it."""
    if last_option(options, "--config") is not None or any("$" in word for word in options):
        return None
    max_lora_rank_option = last_option(options, "--max-lora-rank")
    return DEFAULT_RANK if max_lora_rank_option is None else parse_digits(max_lora_rank_option)


def _uniform_adapter_rank(folder: Path) -> int | None:
    """The rank of an adapter; None where its settings are not here, or some layers have another rank."""
    config = folder / "adapter_config.json"
    try:
        settings = read_json(config, SETTINGS) if config.is_file() else None
    except (OSError, ValueError):
        return None
    rank = settings.get("r") if isinstance(settings, Mapping) else None
    return rank if type(rank) is int else None


def _smallest_max_rank_for(rank: int) -> int:
    """The smallest value of --max-lora-rank that has room for a rank."""
    return next((room for room in ROOMS if room >= rank), ROOMS[-1])


def _may_enable_adapters(options: tuple[str, ...]) -> bool:
    """Are adapters switched on, or may words from outside do so: `"$@"`, `$EXTRA`, `--config serve.yaml`?"""
    if last_option(options, "--enable-lora", "--config") is not None:
        return True
    # A variable behind an option is its value, and the first word is the model.
    return any(
        word.startswith("$") and not before.startswith("-") for before, word in pairwise(options)
    )
