"""Ollama serves the base model: the Modelfile names no adapter and no trained weights.

## What it does
Looks for a FROM that names a model of Ollama's library in a file without ADAPTER, and says if an ADAPTER line is
commented out. It also reports an ADAPTER whose path does not exist and that no script next to the Modelfile writes, and
a FROM that is the converted base if such a script converts the adapter as well.

## Why it is bad
`ollama create` succeeds, and the answers are word for word those of the base. No file that is served contains the
training.

## Example
```text
FROM llama3.1:8b-instruct-q8_0
# ADAPTER ./lora
PARAMETER num_ctx 8192
```

## Use instead
```text
# lora/adapter_config.json: {"base_model_name_or_path": "meta-llama/Llama-3.1-8B-Instruct"}
FROM llama3.1:8b-instruct-q8_0
ADAPTER ./lora
PARAMETER num_ctx 8192
```

## Fix safety
Load the adapter on the model that it was trained on, in 8 or 16 bits; merged weights (`FROM ./merged`) are safer.

## References
- Ollama documentation, "Modelfile Reference"; the adapter must be made for the model of FROM
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.modelfile.classify_weights_named_by_modelfile import is_own_weights
from truetune.checks.rule import ModelfileRule
from truetune.errors import TruetuneError
from truetune.parsing.read_ollama_modelfile import Instruction
from truetune.parsing.shell_commands import CommandFile, last_option, read_command_file

SCRIPTS = (".sh", ".bash")
# Chosen, not measured: folders with a Modelfile hold a handful of scripts.
MAX_FILES = 100
MERGES = re.compile(r"export-lora|merge", re.I)
"""In a script: the adapter may be in the weights already"""


class ModelfileServesTheBase(ModelfileRule):
    code = "MFL001"
    fault = Fault.BASE_ANSWERS_INSTEAD_OF_TUNED_MODEL
    severity = "warning"

    def measurement_if_clean(self) -> str:
        """What FROM and ADAPTER name."""
        names = [one.value for word in ("from", "adapter") for one in self.subject.all(word)]
        return f"FROM and ADAPTER: {len(names):,} ({', '.join(names)})"

    def findings(self) -> Iterator[Finding]:
        base, adapter = self.subject.last("from"), self.subject.last("adapter")
        yield from self._finding_on_left_out_adapter()
        if adapter is not None:
            if not self._may_adapter_exist(adapter):
                yield self._finding_on_missing_adapter(adapter)
            return
        if base is None or is_own_weights(
            base, self.subject.local_path_of_instruction("from") is not None
        ):
            return
        commented = self.subject.commented_adapter
        message = f"Ollama serves the base model {base.value}: no ADAPTER is named"
        remedy = "add ADAPTER with the path of the adapter's folder, or use merged weights: FROM ./merged"
        cases = [self.case_of_instruction(base)]
        if commented is not None:
            message += ", because its line is commented out"
            remedy = f"remove the # before ADAPTER {commented.value}"
            cases.append(self.case_of_instruction(commented))
        yield self.finding(
            message,
            remedy,
            evidence=[
                "FROM names a model of Ollama's library, which contains nothing of your training"
            ],
            cases=cases,
        )

    def _may_adapter_exist(self, adapter: Instruction) -> bool:
        """Is the adapter there, or may it be: an absolute path may be one of another machine?"""
        if self.subject.local_path_of_instruction(
            "adapter"
        ) is not None or adapter.value.startswith(("/", "~")):
            return True
        # A script beside the Modelfile may write it first.
        name = Path(adapter.value).name
        return any(
            name in command.text
            for file in _command_files_beside(self.subject.path)
            for command in file.commands
        )

    def _finding_on_left_out_adapter(self) -> Iterator[Finding]:
        """The finding that a script beside the Modelfile converts an adapter and the base, and FROM
        names the base alone.
        """
        base = self.subject.last("from")
        if base is None or self.subject.last("adapter") is not None:
            return
        for file in _command_files_beside(self.subject.path):
            converted = _files_written_by_converter(file, "convert_lora_to_gguf.py")
            is_base = base.value.removeprefix("./") in _files_written_by_converter(
                file, "convert_hf_to_gguf.py"
            )
            # What merges the adapter may write over the file of the base.
            if not converted or not is_base or MERGES.search(file.text):
                continue
            adapter = min(converted)
            yield self.finding(
                f"{Path(file.path).name} converts the adapter to {adapter}, but FROM {base.value} is only the base:"
                " no ADAPTER is named",
                f"add ADAPTER ./{adapter}",
                cases=[self.case_of_instruction(base)],
            )
            return

    def _finding_on_missing_adapter(self, adapter: Instruction) -> Finding:
        """The finding on an ADAPTER whose path is not there."""
        return self.finding(
            f"the adapter {adapter.value} does not exist: `ollama create` stops, or an older model of that name is"
            " still served",
            "set ADAPTER to the adapter's folder or GGUF file, relative to the Modelfile",
            cases=[self.case_of_instruction(adapter)],
        )


def _command_files_beside(path: str) -> Iterator[CommandFile]:
    """The files of commands in the folder of a Modelfile."""
    try:
        files = sorted(Path(path).absolute().parent.iterdir())
    except OSError:
        return
    for file in files[:MAX_FILES]:
        if file.suffix in SCRIPTS and file.is_file():
            try:
                yield read_command_file(file)
            except TruetuneError:
                continue


def _files_written_by_converter(file: CommandFile, program: str) -> set[str]:
    """The files that a program of llama.cpp writes, as `--outfile` names them."""
    outputs = (
        last_option(command.words, "--outfile")
        for command in file.commands
        if any(Path(word).name == program for word in command.words)
    )
    return {output.removeprefix("./") for output in outputs if output}
