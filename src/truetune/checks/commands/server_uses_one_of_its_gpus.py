"""A vLLM server is shown several GPUs and works on one of them.

## What it does
Reads the commands that start vLLM (`vllm serve`, its container, compose services, jobs), with the GPUs that they are
given: the container's devices, CUDA_VISIBLE_DEVICES, what the job asks for. It fires where these are several, and
neither tensor, pipeline nor data parallelism is asked for. Silent where the file starts anything else that may use the
other GPUs, and where options come from a variable or a file.

## Why it is bad
vLLM starts on one GPU by default. The others are reserved and idle, and the server is as fast as on one card, with the
room of one card for its cache.

## Example
```bash
#!/bin/bash
#SBATCH --gres=gpu:4
vllm serve out/merged --max-model-len 8192
```

## Use instead
```bash
#!/bin/bash
#SBATCH --gres=gpu:4
vllm serve out/merged --max-model-len 8192 --data-parallel-size 4
```

## Fix safety
There is no automatic fix. Data parallelism keeps the model whole on each GPU, for more requests at once; tensor
parallelism cuts it, for models that one GPU does not hold, and needs a number of heads that can be divided.

## References
- https://docs.vllm.ai/en/stable/serving/parallelism_scaling.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.findings import Finding
from truetune.checks.job_gpus_and_processes import (
    PROGRAM_STARTERS,
    gpus_given_to_container,
    gpus_requested_by_job,
    visible_gpus_of_command,
)
from truetune.checks.rule import CommandRule
from truetune.checks.vllm_server_commands import VllmServerCommand, find_vllm_server_commands
from truetune.parsing.shell_commands import CommandFile, last_option, parse_whole_number

PARALLEL = (
    ("--tensor-parallel-size", "-tp"),
    ("--pipeline-parallel-size", "-pp"),
    ("--data-parallel-size", "-dp"),
)
SETTINGS_OPTION = "--config"


class ServerGpus(NamedTuple):
    """A server, and the GPUs that it is shown."""

    server: VllmServerCommand
    gpus: int
    line: int
    text: str


class ServerUsesOneOfItsGpus(CommandRule):
    code = "CMD162"
    severity = "warning"
    what = "vLLM servers whose number of GPUs is said"

    @staticmethod
    def places(file: CommandFile) -> Iterator[ServerGpus]:
        yield from _servers_with_gpus(file)

    def findings(self) -> Iterator[Finding]:
        servers = list(_servers_with_gpus(self.subject))
        if len(servers) != 1 or _others_may_use_gpus(self.subject, servers[0].server):
            return
        shown = servers[0]
        if shown.gpus < 2 or not _works_on_one(shown.server):
            return
        yield self.finding(
            f"vLLM is shown {shown.gpus} GPUs and works on one: {shown.gpus - 1} stay idle",
            f"add --data-parallel-size {shown.gpus} where one GPU holds the model (more requests at once), or"
            f" --tensor-parallel-size {shown.gpus} where it does not; or give it one GPU",
            cases=[
                self.case_at(shown.line, shown.text),
                self.case(shown.server.command, shown.server.command.text.strip()[:300]),
            ],
        )


def _servers_with_gpus(file: CommandFile) -> Iterator[ServerGpus]:
    """The servers of a file, each with the GPUs that it is shown, where their number is plain."""
    for server in find_vllm_server_commands(file):
        command = server.command
        in_container = gpus_given_to_container(command)
        if in_container is not None:
            yield ServerGpus(server, in_container, command.line, f"{in_container} GPUs")
            continue
        found = visible_gpus_of_command(file, command) or gpus_requested_by_job(file)
        if found is not None:
            yield ServerGpus(server, found.gpus, found.line, found.text)


def _others_may_use_gpus(file: CommandFile, server: VllmServerCommand) -> bool:
    """Does the file start another program that may use the GPUs which the server leaves?"""
    others = [command for command in file.commands if command is not server.command]
    return any(
        PROGRAM_STARTERS.intersection(word.rpartition("/")[2] for word in command.words)
        or gpus_given_to_container(command) is not None
        or last_option(command.words, "--gpus") is not None
        for command in others
    )


def _works_on_one(server: VllmServerCommand) -> bool:
    """Is no parallelism asked for, by options that are all seen?"""
    words = server.options
    if any("$" in word for word in words) or last_option(words, SETTINGS_OPTION) is not None:
        return False
    counts = [last_option(words, *names) for names in PARALLEL]
    return all(count is None or parse_whole_number(count) == 1 for count in counts)
