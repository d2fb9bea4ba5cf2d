"""Section `environment`: the card, its driver, and the packages that decide what can be measured."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import subprocess
from collections.abc import Iterator

from bench.gpu.entries import Budget, Entry, Value, measure_guarded
from bench.gpu.size import Size

SECTION = "environment"
PACKAGES = (
    "torch",
    "triton",
    "transformers",
    "tokenizers",
    "peft",
    "trl",
    "accelerate",
    "datasets",
    "numpy",
    "pyarrow",
    "flash-attn",
    "flash-attn-3",
    "kernels",
    "liger-kernel",
    "bitsandbytes",
    "vllm",
    "truetune",
)


def measure(size: Size, budget: Budget) -> Iterator[Entry]:
    """One entry for the machine, one for the card, one for all packages."""
    yield measure_guarded(SECTION, "machine", budget, 0, _machine)
    yield measure_guarded(SECTION, "card", budget, 0, _card)
    yield measure_guarded(SECTION, "packages", budget, 0, _packages)


def _machine() -> Entry:
    import os

    figures: dict[str, Value] = {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
    }
    return Entry(SECTION, "machine", "measured", figures)


def _card() -> Entry:
    """The card as torch and nvidia-smi see it."""
    import torch

    from bench.train import matrix_rate

    if not torch.cuda.is_available():
        return Entry(SECTION, "card", "not run", note="torch sees no CUDA card: all runs on a CPU")
    properties = torch.cuda.get_device_properties(0)
    figures: dict[str, Value] = {
        "name": properties.name,
        "memory GiB": round(properties.total_memory / 2**30, 2),
        "multiprocessors": properties.multi_processor_count,
        "capability": f"{properties.major}.{properties.minor}",
        "CUDA of torch": str(torch.version.cuda),
        "driver": _nvidia_smi("driver_version"),
        "power limit W": _nvidia_smi("power.limit"),
        "bf16": torch.cuda.is_bf16_supported(including_emulation=False),
        "bf16 matrices TFLOP/s": round(matrix_rate() / 1e12, 1),
    }
    return Entry(SECTION, "card", "measured", figures)


def _nvidia_smi(field: str) -> str:
    """One field of the first card; empty where nvidia-smi is missing or does not answer."""
    if shutil.which("nvidia-smi") is None:
        return ""
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits", "--id=0"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout.strip()


def _packages() -> Entry:
    figures: dict[str, Value] = {}
    for name in PACKAGES:
        try:
            figures[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            figures[name] = None
    import truetune

    # Run from its sources, truetune has no metadata of its own.
    figures["truetune"] = truetune.__version__
    return Entry(SECTION, "packages", "measured", figures, note="empty: not installed")
