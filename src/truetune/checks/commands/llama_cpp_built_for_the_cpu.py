"""llama.cpp is built or installed without a GPU backend.

## What it does
Reads the commands that configure llama.cpp with cmake or install llama-cpp-python, in shell scripts, job files and
Dockerfiles. It is info if none of them names a backend (`-DGGML_CUDA=ON`, `-DGGML_HIP=ON`, `-DGGML_VULKAN=ON`,
`CMAKE_ARGS`, an index of CUDA wheels).

## Why it is bad
By default llama.cpp is built for the CPU, except on a Mac. It ignores `-ngl` with one line of warning and computes
every layer on the CPU: an 8B model gives about 7 tokens per second instead of 100 on a GPU.

## Example
```bash
#!/bin/bash
git clone https://github.com/ggml-org/llama.cpp && cd llama.cpp
cmake -B build -DCMAKE_BUILD_TYPE=Release
cmake --build build -j 24
```

## Use instead
```bash
#!/bin/bash
git clone https://github.com/ggml-org/llama.cpp && cd llama.cpp
cmake -B build -DCMAKE_BUILD_TYPE=Release -DGGML_CUDA=ON
cmake --build build -j 24
```

## Fix safety
The CUDA toolkit (nvcc) has to be installed on the build machine. If you only convert or quantize, a CPU build is fine.

## References
- llama.cpp docs/build.md; abetlen/llama-cpp-python README, "Installation Configuration"
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile, ShellCommand

BACKEND = re.compile(
    r"(?:GGML|LLAMA)_(?:CUDA|CUBLAS|HIP|HIPBLAS|VULKAN|SYCL|METAL|MUSA|CANN|OPENCL|BLAS)|whl/(?:cu|rocm|vulkan|metal)"
)
"""What turns a GPU's backend on, or takes wheels that have one"""
PYTHON = "llama-cpp-python"
SERVES = ("llama-server", "llama-cli", "llama-cpp-python", "llama_cpp.server", "ngl", "gpu-layers")
"""What a build is for where it shall generate; a build that converts or quantizes alone needs no GPU"""


class LlamaCppBuiltForTheCpu(CommandRule):
    code = "CMD005"
    fault = Fault.PROGRAM_RUNS_ON_CPU
    severity = "info"
    what = "commands that build or install llama.cpp"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[ShellCommand]:
        """The places that the rule looks at: the commands that build or install llama.cpp."""
        return _generating_builds(file)

    def findings(self) -> Iterator[Finding]:
        file = self.subject
        # A Mac builds for Metal without being asked.
        if BACKEND.search(file.text) or "darwin" in file.text.lower():
            return
        command = next(_generating_builds(file), None)
        if command is None:
            return
        is_python = any(PYTHON in word for word in command.words)
        yield self.finding(
            "llama.cpp is built without a GPU backend (no -DGGML_CUDA=ON): -ngl is ignored, and all layers run"
            " on the CPU",
            'install with CMAKE_ARGS="-DGGML_CUDA=on" pip install --force-reinstall --no-cache-dir llama-cpp-python'
            if is_python
            else (
                "add -DGGML_CUDA=ON to the cmake -B command (AMD: -DGGML_HIP=ON; on a Mac, Metal is on by default),"
                " and build again"
            ),
            cases=[self.case_of_command(command, command.text)],
        )


def _generating_builds(file: CommandFile) -> Iterator[ShellCommand]:
    """Commands that configure a build of llama.cpp which is to generate, or install its Python package."""
    if "llama" not in file.text or not _builds_a_generator(file):
        return
    for command in file.commands:
        words = command.words
        # `cmake --build` runs what was configured before.
        configures = words[:1] == ("cmake",) and ("-B" in words or "-S" in words or ".." in words)
        is_of_llama = "llama.cpp" in file.text
        installs = "install" in words and any(word.startswith(PYTHON) for word in words)
        if (configures and is_of_llama) or installs:
            yield command


def _builds_a_generator(file: CommandFile) -> bool:
    """Is what the file builds to generate: a server, a chat, or everything that there is?"""
    names_target = "--target" in file.text
    return any(word in file.text for word in SERVES) or not names_target
