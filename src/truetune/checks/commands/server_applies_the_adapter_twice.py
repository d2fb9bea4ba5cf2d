"""A server loads an adapter on weights into which it was already merged.

## What it does
Looks at vLLM servers with `--lora-modules`, and at what files next to them merge (scripts with `merge_and_unload`,
`llamafactory-cli export`, `axolotl merge-lora`). It fires if the served model was written by a merge of the same
adapter. Folders that are mounted into a container are resolved to their path on the host.

## Why it is bad
The adapter's update is added twice: the answers overshoot, loop, or are garbage, while the merged model by itself is
fine.

## Example
```bash
llamafactory-cli export --model_name_or_path some/base --adapter_name_or_path out/lora --export_dir out/merged
vllm serve out/merged --enable-lora --lora-modules tuned=out/lora
```

## Use instead
```bash
llamafactory-cli export --model_name_or_path some/base --adapter_name_or_path out/lora --export_dir out/merged
vllm serve out/merged
```

## Fix safety
Serve either the merged model, or the base with the adapter; both give the same answers.

## References
- vLLM documentation, "LoRA Adapters"; peft documentation, `merge_and_unload`
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.checks.faults import Fault
from truetune.checks.find_adapters_merged_into_weights import find_merge_of_adapter
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import CommandRule
from truetune.checks.vllm_server_commands import adapters_by_served_name, find_vllm_server_commands
from truetune.parsing.shell_commands import CommandFile, last_option


class ServerAppliesTheAdapterTwice(CommandRule):
    code = "CMD056"
    fault = Fault.ADAPTER_ON_MODEL_THAT_HAS_IT
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "error"
    what = "servers of vLLM with adapters"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[object]:
        """The places that the rule looks at: the servers of vLLM with adapters."""
        for server in find_vllm_server_commands(file):
            if adapters_by_served_name(server):
                yield server

    def findings(self) -> Iterator[Finding]:
        file = self.subject
        for server in find_vllm_server_commands(file):
            adapters = tuple(adapters_by_served_name(server).values())
            options = server.options
            first = options[0] if options and not options[0].startswith("-") else None
            model = last_option(options, "--model") or first
            merge = (
                find_merge_of_adapter(model, adapters, Path(file.path))
                if model and adapters
                else None
            )
            if merge is None or model is None:
                continue
            yield self.finding(
                f"{model} already contains the adapter {merge.adapter}, which was merged into it, but the server"
                " applies it again",
                f"remove --enable-lora and --lora-modules, or serve the base model instead of {model}",
                cases=[
                    self.case_of_command(server.command, server.command.text.strip()),
                    Case(
                        f"merges {merge.adapter} into {merge.folder}",
                        file=merge.file,
                        line=merge.line,
                    ),
                ],
            )
