"""A server puts an adapter on another model than the one that it was trained on.

## What it does
Compares the model of each vLLM server that is given adapters (`--lora-modules NAME=FOLDER`, in a shell script, a job
file or a compose file) with `base_model_name_or_path` in its adapter_config.json: in the folder itself, behind a
mount of the container, or, where the folder is not here, in the only file of that kind beside the command. Family,
generation, size, release, and whether the model is instruction-tuned are read off the names. A folder that was
trained or merged (`out/sft-merged`) is other weights than a published model. Mirrors and quantized copies of one
model are the same.

## Why it is bad
An adapter is a difference to certain weights. A DPO on a merged SFT learned small changes to the SFT: on the base from
the hub the SFT is missing. Nothing fails, for the shapes fit, and the answers are those of an untrained model.

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
There is no automatic fix: the folder of the merged model may have another name where the server runs.

## References
- artidoro/qlora#28; vLLM documentation, "LoRA Adapters"
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.checks.findings import Case, Finding
from truetune.checks.model_identity import (
    base_in_only_adapter_file,
    base_of_adapter,
    explain_other_base,
)
from truetune.checks.rule import CommandRule
from truetune.checks.vllm_server_commands import (
    VllmServerCommand,
    adapters_by_served_name,
    find_vllm_server_commands,
    folder_on_host,
    model_of_server,
)
from truetune.parsing.shell_commands import CommandFile


class ServerPutsAdapterOnAnotherBase(CommandRule):
    code = "CMD053"
    symptoms = ("garbage-output", "nothing-is-learned", "good-here-bad-there")
    severity = "error"
    stability = "preview"
    what = "vLLM servers with adapters"

    @staticmethod
    def places(file: CommandFile) -> Iterator[VllmServerCommand]:
        for server in find_vllm_server_commands(file):
            if adapters_by_served_name(server) and model_of_server(server):
                yield server

    def findings(self) -> Iterator[Finding]:
        for server in self.places(self.subject):
            served = model_of_server(server)
            if served is None or "$" in served:
                continue
            for name, folder in adapters_by_served_name(server).items():
                yield from self._of_adapter(server, served, name, folder)

    def _of_adapter(
        self, server: VllmServerCommand, served: str, name: str, folder: str
    ) -> Iterator[Finding]:
        """One adapter, where its own base is known and is not the model that is served."""
        known = self._trained_base(server, folder)
        if known is None:
            return
        trained, file = known
        other = explain_other_base(served, trained)
        if other is None:
            return
        yield self.finding(
            f"the adapter {name} was trained on {trained}, and is served on {served}: {other.why}",
            f"serve {trained} with this adapter",
            severity="error" if other.is_proved else "warning",
            cases=[
                self.case(server.command, f"{name}={folder}"),
                Case(f"base_model_name_or_path: {trained}", file=str(file)),
            ],
        )

    def _trained_base(self, server: VllmServerCommand, folder: str) -> tuple[str, Path] | None:
        """The base that an adapter was trained on, and the file that says so."""
        host = folder_on_host(server, folder)
        known = base_of_adapter(host, self.subject.path)
        # One adapter and one file: there is nothing else that the file could be about.
        if known is None and len(adapters_by_served_name(server)) == 1:
            return base_in_only_adapter_file(Path(self.subject.path).absolute().parent, folder)
        return known
