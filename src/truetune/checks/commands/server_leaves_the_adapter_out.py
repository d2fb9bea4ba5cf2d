"""A trained adapter is prepared for a server, but the server is started without it.

## What it does
Looks at the servers in a shell script, a job file or a compose file. llama.cpp: the file converts an adapter
(`convert_lora_to_gguf.py --outfile FILE`), but starts `llama-server` or `llama-cli` without `--lora`. vLLM in a
container: a folder with an adapter is mounted (it contains `adapter_config.json`, or a script next to it trains an
adapter into it), but the server's options name nothing in the mount.

## Why it is bad
The server works, but the base model answers. If it has its own name (`--alias`, `--served-model-name`), nobody notices.

## Example
```bash
python convert_lora_to_gguf.py out/final --base base --outfile adapter.gguf
llama-server -m base.gguf --ctx-size 8192 --alias support
```

## Use instead
```bash
python convert_lora_to_gguf.py out/final --base base --outfile adapter.gguf
llama-server -m base.gguf --lora adapter.gguf --ctx-size 8192 --alias support
```

## Fix safety
There is no automatic fix: a request may load the adapter later (`/lora-adapters`, `/v1/load_lora_adapter`).

## References
- llama.cpp, tools/server/README.md (`--lora`); vLLM documentation, "LoRA Adapters"
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.find_uses_of_weight_folders import is_same_folder
from truetune.checks.findings import Finding
from truetune.checks.rule import CommandRule
from truetune.checks.source.evidence.prompt_forms import model_folders_written
from truetune.checks.vllm_server_commands import find_vllm_server_commands
from truetune.errors import TruetuneError
from truetune.parsing.container_command_on_host import host_folders_and_mount_targets
from truetune.parsing.shell_commands import CommandFile, ShellCommand, last_option
from truetune.source.parsed_source_file import Module, read_module

CONVERTER = "convert_lora_to_gguf.py"
LLAMA_CPP = ("llama-server", "llama-cli")
MERGES = "llama-export-lora"
ADAPTER_CONFIG = "adapter_config.json"
LOADS_LATER = ("lora-adapters", "load_lora_adapter", "VLLM_ALLOW_RUNTIME_LORA_UPDATING")
"""In a file that gives a running server its adapters"""
MAX_SCRIPTS = 40
"""Scripts of the folder that are read. Chosen: a project has fewer"""


class ServerWithoutAdapter(NamedTuple):
    """A server, and the adapter that it does not load."""

    command: ShellCommand
    adapter: str
    remedy: str


class ServerLeavesTheAdapterOut(CommandRule):
    code = "CMD052"
    fault = Fault.BASE_ANSWERS_INSTEAD_OF_TUNED_MODEL
    symptoms = ("nothing-is-learned", "good-here-bad-there")
    severity = "warning"
    what = "servers of llama.cpp and vLLM"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[object]:
        """The places that the rule looks at: the servers of llama.cpp and vLLM."""
        yield from find_vllm_server_commands(file)
        yield from _llama_servers(file)

    def findings(self) -> Iterator[Finding]:
        file = self.subject
        if any(word in file.text for word in LOADS_LATER):
            return
        for server in (
            *_llama_servers_without_adapter(file),
            *_vllm_servers_with_unnamed_mount(file),
        ):
            yield self.finding(
                f"the server is started without the adapter {server.adapter}: the base model answers",
                server.remedy,
                cases=[self.case_of_command(server.command, server.command.text.strip())],
            )


def _llama_servers(file: CommandFile) -> Iterator[tuple[ShellCommand, tuple[str, ...]]]:
    """The commands that start llama.cpp, with their options."""
    for command in file.commands:
        for name in LLAMA_CPP:
            options = command.words_following(name)
            if options is not None:
                yield command, options


def _llama_servers_without_adapter(file: CommandFile) -> Iterator[ServerWithoutAdapter]:
    """Servers of llama.cpp that get none of the adapters which the file converts."""
    converted = [
        last_option(options, "--outfile")
        for command in file.commands
        if (options := command.words_following(CONVERTER)) is not None
    ]
    adapter = next((name for name in converted if name), None)
    servers = list(_llama_servers(file))
    uses = any(
        last_option(options, "--lora", "--lora-scaled") is not None for _, options in servers
    )
    if adapter is None or uses or MERGES in file.text:
        return
    for command, options in servers:
        # Words that only the run knows may hold the adapter.
        if last_option(options, "-m", "--model") and '"$@"' not in command.text:
            yield ServerWithoutAdapter(
                command, adapter, f"add --lora {adapter} to the server command"
            )
            return


def _vllm_servers_with_unnamed_mount(file: CommandFile) -> Iterator[ServerWithoutAdapter]:
    """Servers of vLLM that get a mounted folder with an adapter, and name nothing in it."""
    for server in find_vllm_server_commands(file):
        if any("$" in word for word in server.options):
            continue
        for source, target in host_folders_and_mount_targets(server.command.words):
            if any(folder in word for folder in (source, target) for word in server.options):
                continue
            if _holds_or_will_hold_adapter(Path(file.path).parent, source):
                name = Path(source).name
                remedy = f"add --enable-lora --lora-modules {name}={target}, and name the model {name} in requests"
                yield ServerWithoutAdapter(server.command, source, remedy)


def _holds_or_will_hold_adapter(folder: Path, source: str) -> bool:
    """Is there an adapter in a folder of the host, or does a script beside train one into it?"""
    if (folder / source / ADAPTER_CONFIG).is_file():
        return True
    return any(
        is_same_folder(source, written)
        for script in sorted(folder.glob("*.py"))[:MAX_SCRIPTS]
        for written in _adapter_folders_of_script(script)
    )


def _adapter_folders_of_script(script: Path) -> frozenset[str]:
    """The folders that a script which trains an adapter writes; none where it merges, or can't be read."""
    try:
        module: Module = read_module(script)
    except TruetuneError:
        return frozenset()
    trains_adapter = any(module.calls("peft.LoraConfig", "unsloth.*.get_peft_model"))
    if not trains_adapter or any(module.methods("merge_and_unload", "save_pretrained_merged")):
        return frozenset()
    return model_folders_written(module)
