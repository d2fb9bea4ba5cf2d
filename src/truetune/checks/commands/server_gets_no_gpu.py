"""A container or job that runs a model requests no GPU.

## What it does
Looks at services of compose files, at `docker run` and `podman run`, and at Slurm jobs. It fires if the image is for
CUDA (`vllm/vllm-openai`, `nvidia/cuda`, text-generation-inference, SGLang, the CUDA builds of PyTorch and llama.cpp;
also as the base of a Dockerfile that a service builds), or if a job starts vLLM, SGLang or a script that generates on
`cuda`, and nothing requests a GPU: `gpus`, `deploy.resources.reservations.devices`, `runtime: nvidia`, `--gpus`,
`--device`, `--gres`. For Ollama's image, which also runs without a GPU, it is info.

## Why it is bad
The program sees no GPU although the machine has one. vLLM stops at the start. A script that falls back to the CPU is
about twenty times slower, and only a line in its log shows why.

## Example
```bash
docker run -p 8000:8000 -v ./model:/model vllm/vllm-openai:v0.9.1 --model /model
```

## Use instead
```bash
docker run --gpus all -p 8000:8000 -v ./model:/model vllm/vllm-openai:v0.9.1 --model /model
```

## Fix safety
If NVIDIA's runtime is Docker's default, or the cluster assigns whole nodes, the GPU is available without a request.

## References
- Docker documentation, "Enable GPU access with Docker Compose"; Slurm documentation, "Generic Resource (GRES)"
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import CommandRule
from truetune.checks.vllm_server_commands import find_vllm_server_commands
from truetune.errors import TruetuneError
from truetune.parsing.docker_compose_services_as_commands import is_compose_file
from truetune.parsing.input_limits import SETTINGS, InputLimitError
from truetune.parsing.read_files_within_limits import read_bytes_within_limit
from truetune.parsing.shell_commands import CommandFile, ShellCommand

CUDA_IMAGES = re.compile(
    r"vllm/vllm-openai(?!\S*(?:cpu|rocm|tpu))|text-generation-inference(?!\S*(?:cpu|intel|rocm|amd))"
    r"|nvidia/cuda|nvcr\.io/nvidia|lmsysorg/sglang(?!\S*(?:cpu|rocm))|llama\.cpp\S*:\S*cuda|pytorch/pytorch\S*cuda"
)
OLLAMA_IMAGES = re.compile(r"(?:^|/)ollama/ollama(?!\S*rocm)")
GIVES_GPU = ("--gpus", "--runtime", "--device", "--privileged")
NVIDIA_VARIABLE = "NVIDIA_VISIBLE_DEVICES"
"""Who sets it has NVIDIA's runtime as Docker's default"""
ENGINES = ("docker", "podman")
GPU_REQUESTS = ("--gres", "--gpus", "-G", "--tres-per-node", "--exclusive")
"""What asks Slurm for GPUs; a whole node comes with all of its own"""
GPU_PARTITION = re.compile(r"gpu|a100|h100|h200|l40|v100|a40|a6000|rtx|dgx|accel|cuda", re.I)
GENERATES = re.compile(r"\.generate\(|\bLLM\(|\bpipeline\(")
ON_CUDA = re.compile(r"cuda|device_map|\bLLM\(")


class CommandWithoutGpu(NamedTuple):
    """A command that is given no GPU."""

    command: ShellCommand
    what: str
    fix: str
    is_needed: bool
    """Does it need one, or is it only slow without?"""


class ServerGetsNoGpu(CommandRule):
    code = "CMD054"
    fault = Fault.PROGRAM_RUNS_ON_CPU
    symptoms = ("slow-generation",)
    severity = "warning"
    stability = "preview"
    what = "containers and jobs that run a model"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[object]:
        """The places that the rule looks at: the containers and jobs that run a model."""
        yield from (image for _, image, _ in _started_containers(file) if _image_wants_gpu(image))
        if file.requests:
            yield from _generating_commands(file)

    def findings(self) -> Iterator[Finding]:
        for server in (*_containers_without_gpu(self.subject), *_jobs_without_gpu(self.subject)):
            yield self.finding(
                f"{server.what} requests no GPU: "
                + ("it stops, or runs on the CPU" if server.is_needed else "it runs on the CPU"),
                server.fix,
                severity="warning" if server.is_needed else "info",
                cases=[self.case_of_command(server.command, server.command.text.strip())],
            )


def _image_wants_gpu(image: str) -> bool:
    """Is it an image that runs a model on a GPU?"""
    return any(images.search(image) is not None for images in (CUDA_IMAGES, OLLAMA_IMAGES))


def _started_containers(file: CommandFile) -> Iterator[tuple[ShellCommand, str, tuple[str, ...]]]:
    """The containers that a file starts, each with its image and the options before that."""
    for command in file.commands:
        options = next(
            (
                words
                for engine in ENGINES
                if (words := command.words_following(engine, "run")) is not None
            ),
            None,
        )
        for number, word in enumerate(options or ()):
            if options is not None and _image_wants_gpu(word):
                yield command, word, options[:number]
                break


def _containers_without_gpu(file: CommandFile) -> Iterator[CommandWithoutGpu]:
    """The containers of a file that are given no GPU."""
    is_compose = is_compose_file(Path(file.path))
    if is_compose and _override_file_gives_gpus(Path(file.path)):
        return
    for command, image, options in _started_containers(file):
        # What only the shell knows may hold the option.
        if any(word.startswith("$") for word in options):
            continue
        names = {word.partition("=")[0] for word in options}
        if not names.isdisjoint(GIVES_GPU) or any(NVIDIA_VARIABLE in word for word in options):
            continue
        fix = (
            "add `gpus: all` to the service, or deploy.resources.reservations.devices with driver nvidia and"
            " capabilities [gpu]"
            if is_compose
            else "add --gpus all before the image name"
        )
        needed = CUDA_IMAGES.search(image) is not None
        yield CommandWithoutGpu(command, f"the container of {image}", fix, needed)


def _override_file_gives_gpus(path: Path) -> bool:
    """Does another compose file beside give GPUs, as an override does: `docker-compose.gpu.yml`?"""
    try:
        others = [one for one in path.parent.iterdir() if one != path and is_compose_file(one)]
        texts = [
            read_bytes_within_limit(one, SETTINGS).decode("utf-8", "replace") for one in others
        ]
    except (OSError, InputLimitError):
        return True
    return any("nvidia" in text or "gpu" in text for text in texts)


def _generating_commands(file: CommandFile) -> Iterator[ShellCommand]:
    """The commands of a job that start a server, or a script that generates on a GPU."""
    servers = {id(server.command) for server in find_vllm_server_commands(file)}
    for command in file.commands:
        is_server = id(command) in servers or command.words_following("-m", "sglang.launch_server")
        if is_server or _starts_generating_script(file, command):
            yield command


def _starts_generating_script(file: CommandFile, command: ShellCommand) -> bool:
    """Does a command start a script beside it that generates on a GPU?"""
    name = next((word for word in command.words if word.endswith(".py")), None)
    if name is None or "$" in name:
        return False
    try:
        text = read_bytes_within_limit(Path(file.path).parent / name, SETTINGS).decode(
            "utf-8", "replace"
        )
    except (OSError, ValueError, InputLimitError, TruetuneError):
        return False
    return GENERATES.search(text) is not None and ON_CUDA.search(text) is not None


def _jobs_without_gpu(file: CommandFile) -> Iterator[CommandWithoutGpu]:
    """The first command of a Slurm job that wants a GPU, where the job asks for none."""
    names = set(file.requests)
    if not names or any(name.startswith(GPU_REQUESTS) for name in names):
        return
    partition = next((file.requests[one][0] for one in ("-p", "--partition") if one in names), "")
    for command in _generating_commands(file):
        # srun and the command that submits the job may ask as well.
        if any(word.startswith(GPU_REQUESTS) for word in command.words):
            return
        name = Path(file.path).name
        fix = "add #SBATCH --gres=gpu:1"
        is_of_gpus = GPU_PARTITION.search(partition) is not None
        yield CommandWithoutGpu(command, f"the job {name}", fix, is_needed=not is_of_gpus)
        return
