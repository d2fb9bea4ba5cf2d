"""A server is started with options that make every answer slow.

## What it does
Reads the commands that start vLLM, SGLang, TGI or llama.cpp's server in shell scripts, job files, Dockerfiles, compose
files and Kubernetes manifests, and the file that `--config` names, for options with a certain cost.
- vLLM: `--enforce-eager`, `--max-num-seqs` up to 8, `--dtype float32`, `--cpu-offload-gb` above 0, `--quantization
  bitsandbytes`, and `awq` or `gptq`, which force the old kernels; as info, `--gpu-memory-utilization` below 0.6 if the
  file only starts one server; a `--max-lora-rank` of four times what the adapters of `--lora-modules` need, if their
  configs are on this machine
- SGLang: `--disable-cuda-graph`, `--max-running-requests` up to 8, `--dtype float32` and `--cpu-offload-gb`
- TGI: `--cuda-graphs 0`, `--max-batch-size` up to 8, `--quantize bitsandbytes`
- llama.cpp: `-ngl 0` and, as info, `-ngl` of a few layers and `-np 1`; a float32 GGUF file, by its name or the command
  that wrote it
- variables: `OLLAMA_NUM_PARALLEL=1`, `OLLAMA_KEEP_ALIVE=0`, `CUDA_LAUNCH_BLOCKING=1`, and TGI's `CUDA_GRAPHS=0`

## Why it is bad
Without CUDA graphs (`--enforce-eager`), the CPU starts each kernel of each token separately. With one sequence at a
time, users wait for each other although the GPU could answer dozens at once. float32 doubles the bytes that each token
reads and halves the space for the KV cache. bitsandbytes dequantizes each layer for each token. By default, vLLM uses
the Marlin kernels for AWQ and GPTQ, which are several times as fast on GPUs since Ampere. Offloaded weights cross the
bus once per token, and layers on the CPU are ten times slower than on the GPU.

## Example
```bash
#!/bin/bash
vllm serve ./merged --port 8000 --enforce-eager --max-num-seqs 1
```

## Use instead
```bash
#!/bin/bash
vllm serve ./merged --port 8000 --max-num-seqs 64
```

## Fix safety
CUDA graphs take 1 to 3 GiB: if the server does not start without `--enforce-eager`, first lower
`--gpu-memory-utilization` or `--max-model-len`. Sampled answers differ between batches by rounding.

## References
- vLLM documentation, engine arguments; vllm-project/vllm#4449, vllm-project/vllm#21376
- SGLang documentation, server arguments
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.minimum_host_memory_of_run import ADAPTER_FILE
from truetune.checks.rule import CommandRule
from truetune.checks.source.evidence.model_folder_settings import read_folder_settings
from truetune.checks.vllm_server_commands import (
    ServerSetting,
    VllmServerCommand,
    adapters_by_served_name,
    find_vllm_server_commands,
    settings_in_server_config_file,
)
from truetune.parsing.shell_commands import (
    CommandFile,
    is_compose_file_or_manifest,
    last_option,
    parse_digits,
)

SGLANG = "sglang.launch_server"
LLAMA_CPP = ("llama-server", "llama-cli", "llama-run")
TGI, TGI_IMAGE = "text-generation-launcher", "text-generation-inference"
# At half, 10, the small models of half their layers are passed over; at double, 40, whole 8B models (32 layers) are
# told.
WHOLE_MODEL = 20
"""Layers on the GPU below which no published model of 1B or more is whole there (Llama 3.2 1B has 16, and its head); a
larger number may be all that there are"""
OLD_KERNELS = ("awq", "gptq")
"""Values of vLLM's --quantization that keep the Marlin kernels from being taken"""
# vLLM's default is 0.9. Half and less is what two servers on one GPU are given.
LOW_SHARE = 0.6
"""--gpu-memory-utilization below which a server alone leaves much of its GPU unused"""
LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Values that vLLM's --max-lora-rank may have (vllm/config/lora.py)"""
# At 2, a server that is open for adapters of the next size is told; at 8, 64 for adapters of 16 is passed over.
FAR_TOO_WIDE = 4
"""Times the rank that is needed, from which on --max-lora-rank is told"""
FLOAT32_NAME = re.compile(r"(?i)[-_.](?:f|fp)32(?=$|[-_.])")
"""In the name of a GGUF file, as convert_hf_to_gguf.py and the hub write it"""
SMALL_CAP = 8
"""Requests at once up to which a cap surely leaves a GPU idle; where memory is short, the cache of keys and values
bounds them by itself. 0 is no limit to some engines, and one request at a time to others: both are told"""


class SlowOption(NamedTuple):
    """An option that costs speed."""

    spelled: str
    why: str
    instead: str
    is_certain: bool = True
    """It is slow on every machine; else only where the GPU has room for more"""


class ServerGeneratesSlowly(CommandRule):
    code = "CMD002"
    fault = Fault.GENERATION_OPTIONS_SLOW
    severity = "warning"
    what = "commands that start vLLM, SGLang, TGI or llama.cpp, and variables that make them slow"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[object]:
        """The places that the rule looks at.

        The commands that start vLLM, SGLang, TGI or llama.cpp, and slow variables.
        """
        yield from (server for server, _ in _servers_with_option_readers(file))
        yield from _slow_environment_variables(file)

    def findings(self) -> Iterator[Finding]:
        for name, line, slow_variable in _slow_environment_variables(self.subject):
            yield self.finding(
                slow_variable.why,
                slow_variable.instead,
                cases=[Case(name, file=self.subject.path, line=line)],
            )
        for server, slow_options in _servers_with_option_readers(self.subject):
            settings = settings_in_server_config_file(self.subject, server)
            slow = list(slow_options((*server.options, *_settings_as_options(settings))))
            if slow:
                yield self.finding(
                    f"this server answers slowly: {'; '.join(one.why for one in slow)}",
                    "; ".join(one.instead for one in slow),
                    severity="warning" if any(one.is_certain for one in slow) else "info",
                    cases=[self._case_of_option(server, one, settings) for one in slow],
                )

    def _case_of_option(
        self, server: VllmServerCommand, slow: SlowOption, settings: list[ServerSetting]
    ) -> Case:
        """The case of a slow option: where it stands in the server's file of settings, else in the
        command.
        """
        name = slow.spelled.partition(" ")[0]
        for one in settings:
            if one.option == name:
                text = f"{name.removeprefix('--')}: {one.value or 'true'}"
                return Case(text, file=one.file, line=one.line)
        return self.case_of_command(server.command, slow.spelled)


def _settings_as_options(settings: list[ServerSetting]) -> Iterator[str]:
    """Settings of a file as the words of a command."""
    for one in settings:
        yield f"{one.option}={one.value}" if one.value else one.option


VARIABLES = {
    ("OLLAMA_NUM_PARALLEL", "1"): (
        "OLLAMA_NUM_PARALLEL=1: Ollama answers one request at a time, and other users wait",
        (
            "set OLLAMA_NUM_PARALLEL=4 (each request then has its own cache of num_ctx tokens), or use vLLM for"
            " many users"
        ),
    ),
    ("OLLAMA_KEEP_ALIVE", "0"): (
        "OLLAMA_KEEP_ALIVE=0: Ollama unloads the model after each answer, and loads it again for the next",
        "set OLLAMA_KEEP_ALIVE=24h, or -1 to keep it loaded",
    ),
    ("CUDA_GRAPHS", "0"): (
        "CUDA_GRAPHS=0: text-generation-inference starts each kernel of each token separately",
        "remove CUDA_GRAPHS (the default captures graphs for batches of 1, 2, 4, 8, 16 and 32)",
    ),
    ("CUDA_LAUNCH_BLOCKING", "1"): (
        "CUDA_LAUNCH_BLOCKING=1: the CPU waits for each kernel before it starts the next",
        "remove CUDA_LAUNCH_BLOCKING, which is only for debugging",
    ),
}
"""Variable and value -> why it is slow, and what to do"""
SETS = re.compile(r"\b(\w+)=[\"']?(\w+)")


class SlowVariable(NamedTuple):
    """A variable that costs speed."""

    why: str
    instead: str


def _slow_environment_variables(file: CommandFile) -> Iterator[tuple[str, int, SlowVariable]]:
    """The variables that a file sets to a value which costs speed, each as it is written, and its line."""
    lines: Iterable[tuple[int, str]] = enumerate(file.text.splitlines(), 1)
    if is_compose_file_or_manifest(Path(file.path)):
        words = ((one, word) for one in file.commands for word in one.words)
        lines = ((command.line_of(word), word) for command, word in words)
    for number, line in lines:
        for name, value in SETS.findall(line.partition("#")[0]):
            # Ollama takes `0s` and `0m` as it takes 0.
            slow = VARIABLES.get((name, value.removesuffix("s").removesuffix("m")))
            # Other programs may have a variable of this name.
            is_of_other = name == "CUDA_GRAPHS" and "text-generation" not in file.text
            if slow is not None and not is_of_other:
                yield f"{name}={value}", number, SlowVariable(*slow)


SlowOptions = Callable[[tuple[str, ...]], Iterator[SlowOption]]


def _servers_with_option_readers(
    file: CommandFile,
) -> Iterator[tuple[VllmServerCommand, SlowOptions]]:
    """The servers that a file starts, each with the function that finds the slow ones among its
    options.
    """
    servers = list(find_vllm_server_commands(file))
    for server in servers:
        yield server, partial(_slow_vllm_options_with_adapters, file, server, len(servers) == 1)
    for command in file.commands:
        of_sglang = command.words_following("-m", SGLANG)
        if of_sglang is not None:
            yield VllmServerCommand(command, of_sglang), _slow_sglang_options
        of_tgi = command.words_following(TGI)
        is_image = any(TGI_IMAGE in word for word in command.words) and "run" in command.words
        if of_tgi is not None or is_image:
            yield VllmServerCommand(command, of_tgi or command.words), _slow_tgi_options
        for program in LLAMA_CPP:
            of_llama = command.words_following(program)
            if of_llama is not None:
                yield VllmServerCommand(command, of_llama), partial(_slow_llama_cpp_options, file)


def _slow_vllm_options(options: tuple[str, ...]) -> Iterator[SlowOption]:
    """The options of vLLM that cost speed."""
    if last_option(options, "--enforce-eager") is not None:
        yield SlowOption(
            "--enforce-eager", "--enforce-eager switches CUDA graphs off", "remove --enforce-eager"
        )
    yield from _small_concurrency_option(options, "--max-num-seqs")
    yield from _precision_and_offload_options(options)
    quantized = last_option(options, "--quantization", "-q")
    if quantized in OLD_KERNELS:
        yield SlowOption(
            f"--quantization {quantized}",
            f"--quantization {quantized} forces the old kernel instead of Marlin (on GPUs since Ampere)",
            f"remove --quantization {quantized} (vLLM reads it from the checkpoint), or use --quantization"
            f" {quantized}_marlin",
        )
    if quantized == "bitsandbytes":
        yield SlowOption(
            "--quantization bitsandbytes",
            "--quantization bitsandbytes dequantizes each layer for each token",
            (
                "remove --quantization bitsandbytes if bfloat16 fits in memory, or else serve AWQ, GPTQ or FP8"
                " weights"
            ),
        )


def _slow_options_of_lone_vllm(options: tuple[str, ...]) -> Iterator[SlowOption]:
    """The options that cost speed of the only vLLM server of a file."""
    yield from _slow_vllm_options(options)
    share = last_option(options, "--gpu-memory-utilization") or ""
    # A text that is no number is the shell's variable, whose value is not known.
    if share.replace(".", "", 1).isdecimal() and 0 < float(share) < LOW_SHARE:
        yield SlowOption(
            f"--gpu-memory-utilization {share}",
            f"--gpu-memory-utilization {share} leaves {100 * (1 - float(share)):.0f} % of the GPU unused; the size"
            " of the KV cache limits how many requests run at once",
            "set it to 0.90 (the default) if no other process uses this GPU",
            is_certain=False,
        )


def _slow_sglang_options(options: tuple[str, ...]) -> Iterator[SlowOption]:
    """The options of SGLang that cost speed."""
    if last_option(options, "--disable-cuda-graph") is not None:
        yield SlowOption(
            "--disable-cuda-graph",
            "--disable-cuda-graph starts each kernel of each token separately",
            "remove --disable-cuda-graph (if memory is short, lower --cuda-graph-max-bs)",
        )
    yield from _small_concurrency_option(options, "--max-running-requests")
    yield from _precision_and_offload_options(options)


def _slow_tgi_options(options: tuple[str, ...]) -> Iterator[SlowOption]:
    """The options of text-generation-inference that cost speed."""
    if last_option(options, "--cuda-graphs") == "0":
        yield SlowOption(
            "--cuda-graphs 0",
            "--cuda-graphs 0 starts each kernel of each token separately",
            "remove --cuda-graphs 0",
        )
    yield from _small_concurrency_option(options, "--max-batch-size")
    quantized = last_option(options, "--quantize") or ""
    if quantized.startswith("bitsandbytes"):
        yield SlowOption(
            f"--quantize {quantized}",
            f"--quantize {quantized} dequantizes each layer for each token",
            f"remove --quantize {quantized} if bfloat16 fits in memory, or else serve AWQ, GPTQ or FP8 weights",
        )


def _slow_vllm_options_with_adapters(
    file: CommandFile, server: VllmServerCommand, is_alone: bool, options: tuple[str, ...]
) -> Iterator[SlowOption]:
    """The options of a vLLM server that cost speed, also by the adapters that it serves."""
    yield from _slow_options_of_lone_vllm(options) if is_alone else _slow_vllm_options(options)
    yield from _oversized_adapter_rank(file, server, options)


def _oversized_adapter_rank(
    file: CommandFile, server: VllmServerCommand, options: tuple[str, ...]
) -> Iterator[SlowOption]:
    """The option that pads all adapters to a rank that none of them has; nothing where one of them
    is not here.
    """
    max_lora_rank_option = parse_digits(last_option(options, "--max-lora-rank"))
    folders = adapters_by_served_name(server).values()
    if not max_lora_rank_option or not folders:
        return
    ranks = [_largest_adapter_rank(Path(file.path).parent / folder) for folder in folders]
    largest = max(rank or 0 for rank in ranks)
    needed = next((rank for rank in LORA_RANKS if rank >= largest), max_lora_rank_option)
    if all(ranks) and max_lora_rank_option >= FAR_TOO_WIDE * needed:
        yield SlowOption(
            f"--max-lora-rank {max_lora_rank_option}",
            f"--max-lora-rank {max_lora_rank_option} pads each adapter to rank {max_lora_rank_option}, although the"
            f" largest has r={largest}: every"
            f" layer computes and stores {max_lora_rank_option // largest} times as much",
            f"set --max-lora-rank {needed}",
        )


def _largest_adapter_rank(folder: Path) -> int | None:
    """The largest rank that an adapter's settings name; None where they are not here."""
    settings = read_folder_settings(folder / ADAPTER_FILE)
    pattern = settings.get("rank_pattern")
    others = pattern.values() if isinstance(pattern, dict) else ()
    return max((one for one in (settings.get("r"), *others) if type(one) is int), default=None)


def _slow_llama_cpp_options(file: CommandFile, options: tuple[str, ...]) -> Iterator[SlowOption]:
    """The options of llama.cpp that cost speed; without -ngl, it puts on the GPU what fits."""
    model = last_option(options, "-m", "--model") or ""
    if (
        _is_float32_file(file, model)
        and last_option(options, "--embedding", "--embeddings") is None
    ):
        yield SlowOption(
            f"-m {model}",
            f"{Path(model).name} is float32: each token reads 4 bytes per weight (Q8_0: 1.1, Q4_K_M: 0.6)",
            f"quantize it once: llama-quantize {model} {_quantized_file_name(model)} Q4_K_M (or Q8_0),"
            " and serve that file",
        )
    layers = parse_digits(last_option(options, "-ngl", "--n-gpu-layers", "--gpu-layers"))
    if layers is not None and 0 <= layers < WHOLE_MODEL:
        yield SlowOption(
            f"-ngl {layers}",
            f"-ngl {layers} keeps all other layers on the CPU",
            "set -ngl 99; if that does not fit, lower -c or use a smaller quantization",
            # None on the GPU is slow on every machine; some may be all that fit.
            is_certain=layers == 0,
        )
    if last_option(options, "-np", "--parallel") == "1":
        yield SlowOption(
            "-np 1",
            "-np 1 answers one request at a time, and other users wait",
            "for several users, set -np 8 and make -c eight times as large",
            # One user alone is answered fastest so.
            is_certain=False,
        )


def _is_float32_file(file: CommandFile, model: str) -> bool:
    """Does a GGUF file hold float32, by its name or by the command of this file that wrote it?"""
    if not model.lower().endswith(".gguf"):
        return False
    if FLOAT32_NAME.search(Path(model).name):
        return True
    return any(
        last_option(command.words, "--outfile") == model
        and last_option(command.words, "--outtype") == "f32"
        for command in file.commands
    )


def _quantized_file_name(model: str) -> str:
    """The name of the quantized file to make: `model-q4_k_m.gguf` for `model-f32.gguf`"""
    return FLOAT32_NAME.sub("", model.removesuffix(".gguf")) + "-q4_k_m.gguf"


def _small_concurrency_option(options: tuple[str, ...], name: str) -> Iterator[SlowOption]:
    """The option by which a server works on few requests at once, however much room its cache has."""
    option = last_option(options, name)
    cap = parse_digits(option)
    if cap is not None and cap <= SMALL_CAP:
        few = (
            "one request at a time, and all others wait"
            if cap < 2
            else f"{cap} requests at a time, and all others wait"
        )
        yield SlowOption(
            f"{name} {option}",
            f"{name} {option} answers {few}",
            f"remove {name} {option} or set it to 64",
        )


def _precision_and_offload_options(options: tuple[str, ...]) -> Iterator[SlowOption]:
    """Options on the bytes that each token reads (weights, cache, offloading), which vLLM and
    SGLang spell alike.
    """
    dtype = last_option(options, "--dtype")
    if dtype in ("float32", "float"):
        yield SlowOption(
            f"--dtype {dtype}",
            f"--dtype {dtype} reads twice the bytes for each token",
            f"remove --dtype {dtype} or set it to bfloat16",
        )
    offloaded = last_option(options, "--cpu-offload-gb")
    # A text that is no number is the shell's variable, whose value is not known.
    if offloaded and offloaded.replace(".", "").isdecimal() and float(offloaded) > 0:
        yield SlowOption(
            f"--cpu-offload-gb {offloaded}",
            "--cpu-offload-gb sends weights over the bus for each token",
            "remove --cpu-offload-gb, and serve quantized weights or use more GPUs (--tensor-parallel-size)",
        )
