"""A server casts a bfloat16 model to float16, where its activations can overflow.

## What it does
Reads the commands that start vLLM, SGLang or TGI in shell scripts, job files, Dockerfiles and compose files for
`--dtype half` or `float16`, and compares it with the checkpoint's own data type (`config.json` in the folder, if it is
on this machine). It is a warning for families that are known to overflow (Gemma, T5), and info otherwise. It is an
error if answers saved next to it consist of one repeated character, as they do when logits are NaN. It skips quantized
checkpoints, because many of their kernels need float16.

## Why it is bad
The largest float16 number is 65,504, while bfloat16 has the range of float32. A model that was trained in bfloat16 may
have larger activations: they become infinite, the logits NaN, and every answer is token 0 (`!!!!` in many
vocabularies).

## Example
```bash
vllm serve google/gemma-3-4b-it --dtype half
```

## Use instead
```bash
vllm serve google/gemma-3-4b-it --dtype bfloat16
```

## Fix safety
V100, T4 and other GPUs before Ampere have no bfloat16: use `--dtype float32` there, which takes twice the memory.

## References
- vLLM documentation, engine arguments: `--dtype` (auto takes the checkpoint's own)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from truetune.checks.faults import Fault
from truetune.checks.find_gpus_in_files_beside import find_gpus_beside
from truetune.checks.find_only_gpu_named_in_files import GPU_WITHOUT_BFLOAT16
from truetune.checks.findings import Finding
from truetune.checks.identify_model_by_published_name import family_known_to_overflow_float16
from truetune.checks.rule import CommandRule
from truetune.checks.source.evidence.model_folder_settings import read_folder_settings
from truetune.checks.source.evidence.published_bases_of_folders import overflowing_family_of_folder
from truetune.checks.vllm_server_commands import (
    VllmServerCommand,
    find_vllm_server_commands,
    model_of_server,
)
from truetune.parsing.shell_commands import CommandFile, last_option

HALF = frozenset(("half", "float16", "fp16"))
QUANTIZED = re.compile(r"(?i)awq|gptq|int4|int8|4bit|w4a16|w8a|marlin|bnb|fp8")
"""In the name of a model whose kernels may need float16"""
OVERFLOW = "activations above 65,504 become infinite, and answers become `!!!!`"
MAY_OVERFLOW = "if it has activations above 65,504, answers become `!!!!`"
JOB_LINE = re.compile(r"(?m)^[ \t]*#(?:SBATCH|PBS|\$)\s.*$")


class ServerCastsToFloat16(CommandRule):
    code = "CMD152"
    fault = Fault.FLOAT16_RANGE_EXCEEDED
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "warning"
    what = "commands that start vLLM, SGLang or TGI with a dtype"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[VllmServerCommand]:
        """The places that the rule looks at: the commands that start vLLM, SGLang or TGI with a dtype."""
        return (one for one in _vllm_servers(file) if last_option(one.options, "--dtype"))

    def findings(self) -> Iterator[Finding]:
        for server in self.examined_places(self.subject):
            dtype = last_option(server.options, "--dtype") or ""
            if dtype in HALF:
                yield from self._findings_on_cast(server, dtype)

    def _findings_on_cast(self, server: VllmServerCommand, dtype: str) -> Iterator[Finding]:
        """Findings that a cast to float16 may overflow, where the checkpoint is of bfloat16."""
        model = _served_model_name(server)
        settings = _checkpoint_config(self.subject, server, model)
        if _is_quantized(server, model, settings):
            return
        kind = str(settings.get("model_type") or "").removesuffix("_text")
        family = family_known_to_overflow_float16(model) or family_known_to_overflow_float16(kind)
        if family is None and model:
            family = overflowing_family_of_folder(Path(self.subject.path), model)
        own = str(settings.get("torch_dtype") or settings.get("dtype") or "")
        if own == "bfloat16" or (family and not own):
            yield self._finding_on_overflow(server, dtype, family)

    def _finding_on_overflow(
        self, server: VllmServerCommand, dtype: str, family: str | None
    ) -> Finding:
        """The finding that the cast may overflow, with what this GPU can do in its place."""
        gpu = _gpu_without_bfloat16(self.subject)
        remedy = f"remove --dtype {dtype}: the default is the checkpoint's bfloat16 (on a V100 or T4: --dtype float32)"
        if gpu:
            remedy = (
                f"set --dtype float32 (twice the memory), since this GPU ({gpu}) has no bfloat16; or serve without"
                " --dtype on a GPU that has it (A100, L4, RTX 30 and later)"
            )
        whose = f"{family}, which overflows there" if family else "a checkpoint in bfloat16"
        return self.finding(
            f"--dtype {dtype} casts {whose} to float16: {OVERFLOW if family else MAY_OVERFLOW}",
            remedy,
            severity="warning" if family else "info",
            cases=[self.case_of_command(server.command, f"--dtype {dtype}")],
        )


def _vllm_servers(file: CommandFile) -> Iterator[VllmServerCommand]:
    """The vLLM servers that a file starts."""
    yield from find_vllm_server_commands(file)
    for command in file.commands:
        options = command.words_following("-m", "sglang.launch_server") or command.words_following(
            "text-generation-launcher"
        )
        if options is not None:
            yield VllmServerCommand(command, options)


def _served_model_name(server: VllmServerCommand) -> str:
    """The model that a server loads; empty where the command does not name it."""
    named = last_option(server.options, "--model-path", "--model-id")
    return named or model_of_server(server) or ""


def _is_quantized(server: VllmServerCommand, model: str, settings: Mapping[str, object]) -> bool:
    """Is the model quantized, by an option, its name or its own settings?"""
    quantization_option = last_option(server.options, "--quantization", "-q", "--quantize")
    is_named = quantization_option is not None or QUANTIZED.search(model) is not None
    return is_named or "quantization_config" in settings


def _checkpoint_config(
    file: CommandFile, server: VllmServerCommand, model: str
) -> dict[str, object]:
    """The config.json of the model that is served: in its folder, or in one of the same name beside the commands."""
    if not model:
        return {}
    beside, path = Path(file.path).parent, model
    # The job names the cluster's folder; a copy of it lies beside the job where someone asks for help.
    for folder in (Path(path), beside / path, beside / Path(path).name):
        settings = read_folder_settings(folder / "config.json")
        if settings:
            return settings
    return {}


def _gpu_without_bfloat16(file: CommandFile) -> str:
    """The GPU of the job, where it is one without bfloat16; empty where it has it, or is not known."""
    for line in JOB_LINE.findall(file.text):
        match = GPU_WITHOUT_BFLOAT16.search(line)
        if match is not None:
            return match[0]
    for gpu in find_gpus_beside(file.path, file.text):
        match = GPU_WITHOUT_BFLOAT16.search(gpu.name)
        if match is not None:
            return match[0]
    return ""
