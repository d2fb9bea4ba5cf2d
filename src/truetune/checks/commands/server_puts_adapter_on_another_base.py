"""A server loads an adapter on another base model than the one that it was trained on.

## What it does
Compares the model of each server that loads adapters (vLLM's `--lora-modules`, SGLang's `--lora-paths`, TGI's
`--lora-adapters`, as `NAME=FOLDER` or JSON, in a shell script, a job file or a compose file, in a container or not)
with `base_model_name_or_path` in the adapter's adapter_config.json. It looks for that file in the folder itself or
under a mount of the container; if the folder is not on this machine, it takes the only such file next to the command.
It checks the same for a command that passes a base and an adapter to a merge script. Family, generation, size, release,
and whether the model is instruction-tuned are taken from the names. A folder into which the project merges an adapter
or trains contains other weights than a published model: that is an error. A folder with only such a name
(`out/sft-merged`) is a warning. Mirrors and quantized copies of one model count as the same.

## Why it is bad
An adapter is a change to particular weights. DPO on a merged SFT model learns small changes to the SFT; on the base
model from the hub, the SFT is missing. There is no error, because the shapes fit, and the answers are those of an
untrained model.

## Example
```yaml
files:
  adapter/adapter_config.json: {base_model_name_or_path: ./out/sft-merged, r: 16}
  serve.sh: vllm serve Qwen/Qwen2.5-7B --enable-lora --lora-modules dpo=adapter
```

## Use instead
```yaml
files:
  adapter/adapter_config.json: {base_model_name_or_path: ./out/sft-merged, r: 16}
  serve.sh: vllm serve ./out/sft-merged --enable-lora --lora-modules dpo=adapter
```

## Fix safety
There is no automatic fix: the merged model's folder may have another name where the server runs.

## References
- artidoro/qlora#28; vLLM documentation, "LoRA Adapters"
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.find_adapters_merged_into_weights import (
    ADAPTER_OPTION,
    option_value,
    read_script_of_command,
)
from truetune.checks.findings import Case, Finding
from truetune.checks.identify_model_by_published_name import (
    base_in_only_adapter_file,
    base_of_adapter,
)
from truetune.checks.is_adapter_on_its_trained_base import explain_other_base_below_adapter
from truetune.checks.rule import CommandRule
from truetune.checks.sglang_server_commands import sglang_server
from truetune.checks.tgi_server_commands import tgi_server_started_by_command
from truetune.checks.vllm_server_commands import (
    adapters_by_served_name,
    find_vllm_server_commands,
    model_of_server,
)
from truetune.parsing.shell_commands import CommandFile, ShellCommand

BASE_OPTION = re.compile(r"--(?:base|base[-_]model[\w-]*|model[-_]name[\w-]*|model[-_]path|model)")
PUTS_ADAPTERS_ON = b"PeftModel"
"""What stands in a script that puts an adapter on a model"""


class _AdapterOnModel(NamedTuple):
    """A command that puts an adapter on a model."""

    command: ShellCommand
    model: str
    adapters: dict[str, str]
    """Name -> folder"""
    verb: str


class ServerPutsAdapterOnAnotherBase(CommandRule):
    code = "CMD053"
    fault = Fault.ADAPTER_PUT_ON_WRONG_BASE
    symptoms = (
        "garbage-output",
        "nothing-is-learned",
        "good-here-bad-there",
        "dpo-without-effect",
    )
    severity = "error"
    stability = "preview"
    what = "servers with adapters"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[_AdapterOnModel]:
        """The places that the rule looks at: the servers with adapters."""
        yield from _vllm_servers_with_adapters(file)
        for command in file.commands:
            adapter_on_model = (
                _sglang_server_with_adapters(command)
                or _tgi_server_with_adapters(command)
                or _adapter_merge_by_script(file, command)
            )
            if adapter_on_model is not None:
                yield adapter_on_model

    def findings(self) -> Iterator[Finding]:
        for one in self.examined_places(self.subject):
            if "$" in one.model:
                continue
            for name, folder in one.adapters.items():
                yield from self._findings_on_adapter(one, name, folder)

    def _findings_on_adapter(
        self, one: _AdapterOnModel, name: str, folder: str
    ) -> Iterator[Finding]:
        """Findings on one adapter, where its own base is known and is not the model below it."""
        known = self._trained_base_and_file_saying_so(one, folder)
        if known is None:
            return
        trained, file = known
        other = explain_other_base_below_adapter(one.model, trained, self.subject.path)
        if other is None:
            return
        yield self.finding(
            f"the adapter {name} was trained on {trained}, but is {one.verb} {one.model}: {other.why}",
            f"use {trained} instead of {one.model} with this adapter",
            severity="error" if other.is_proved else "warning",
            cases=[
                self.case_of_command(one.command, f"{one.model} with {name}={folder}"),
                Case(f"base_model_name_or_path: {trained}", file=str(file)),
                *other.cases,
            ],
        )

    def _trained_base_and_file_saying_so(
        self, one: _AdapterOnModel, folder: str
    ) -> tuple[str, Path] | None:
        """The base that an adapter was trained on, and the file that says so."""
        known = base_of_adapter(folder, self.subject.path)
        # One adapter and one file: there is nothing else that the file could be about.
        if known is None and len(one.adapters) == 1:
            return base_in_only_adapter_file(Path(self.subject.path).absolute().parent, folder)
        return known


def _vllm_servers_with_adapters(file: CommandFile) -> Iterator[_AdapterOnModel]:
    """The servers of vLLM that put adapters on a model."""
    for server in find_vllm_server_commands(file):
        adapters, model = adapters_by_served_name(server), model_of_server(server)
        if adapters and model:
            yield _AdapterOnModel(server.command, model, adapters, "served on")


def _sglang_server_with_adapters(command: ShellCommand) -> _AdapterOnModel | None:
    """A server of SGLang with adapters; None where a command starts none."""
    server = sglang_server(command)
    if server is None or not server.adapters:
        return None
    return _AdapterOnModel(command, server.model, server.adapters, "served on")


def _tgi_server_with_adapters(command: ShellCommand) -> _AdapterOnModel | None:
    """A server of TGI with adapters; None where a command starts none."""
    server = tgi_server_started_by_command(command)
    if server is None or not server.adapters:
        return None
    return _AdapterOnModel(command, server.model, server.adapters, "served on")


def _adapter_merge_by_script(file: CommandFile, command: ShellCommand) -> _AdapterOnModel | None:
    """A command that gives a script of the folder a base and an adapter to put on it; None for any other."""
    base, adapter = option_value(command, BASE_OPTION), option_value(command, ADAPTER_OPTION)
    if not base or not adapter:
        return None
    if PUTS_ADAPTERS_ON not in read_script_of_command(Path(file.path), command):
        return None
    return _AdapterOnModel(command, base, {Path(adapter).name: adapter}, "loaded on")
