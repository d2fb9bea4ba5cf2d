"""Reads from llama.cpp's log on which devices it put a model's layers and their cache.

A build without a GPU backend prints no warning through the Python package: what tells is that every layer, and the
whole cache, is on the CPU. That is a fault only where a GPU was meant: the log names one, or asks for layers on it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

DEVICE_LINE = re.compile(
    r"load_tensors: layer +\d+ assigned to device (\w+)"
    r"|llama_kv_cache\w*: layer +\d+: dev = (\w+)"
    r"|(?:llama_kv_cache\w*|load_tensors|llm_load_tensors): +(\w+) (?:KV|model) buffer size"
)
WEIGHTS_LINE = re.compile(r"model buffer size = {0,8}(\d{1,9}(?:\.\d{1,4})?) MiB")
CACHE_LINE = re.compile(
    r"llama_kv_cache\w*: size = {0,8}(?P<mib>\d{1,9}(?:\.\d{1,4})?) MiB \( {0,8}(?P<cells>\d{1,9}) cells"
    r", {1,8}\d{1,5} layers(?:, {1,8}(?P<slots>\d{1,5})(?:/\d{1,5})? seqs)?"
)
LOADING_LINE = re.compile(r"load_tensors|llama_kv_cache|llama_model_load")
CPU_DEVICES = ("CPU", "CPU_Mapped", "CPU_REPACK", "CPU_AARCH64", "CPU_HBM", "BLAS", "AMX")
"""Names of the machine's own memory; anything else is a GPU or another accelerator"""
GPU_MENTION = re.compile(
    r"\b(?:NVIDIA|GeForce|RTX|GTX|Tesla|Radeon|MI[23]\d\dX?)\b"
    r"|(?:\bn[-_]gpu[-_]layers|gpu_layers|-ngl)['\"]?\s{0,3}[=: ]\s{0,3}(?:-1|[1-9]\d*|all|auto)\b"
)
"""A GPU of the machine, or a setting that puts layers on one"""


@dataclass(frozen=True, slots=True)
class LayerDevices:
    """Where the layers of a model were put."""

    on_cpu: int = 0
    """Lines that say that something is on the CPU"""
    elsewhere: int = 0
    """The same of any other device"""
    line: int = 0
    text: str = ""
    """The first that names the CPU"""
    means_gpu: bool = False
    """The log names a GPU, or asks for layers on one"""
    weights_mib: float = 0.0
    cache_mib: float = 0.0
    """Of all requests together; 0 where the log does not say it"""
    cells: int = 0
    """Tokens that the cache has room for"""
    slots: int = 0
    """Requests among which they are divided"""

    @property
    def is_all_on_cpu(self) -> bool:
        """Is the whole model on the CPU?"""
        return self.on_cpu > 0 and not self.elsewhere


@dataclass(slots=True)
class LayerDeviceReader:
    """Counts devices in the lines of one log."""

    _on_cpu: int = 0
    _elsewhere: int = 0
    _line: int = 0
    _text: str = ""
    _means_gpu: bool = False
    _weights: float = 0.0
    _cache: tuple[float, int, int] = (0.0, 0, 0)

    def add_line(self, text: str, number: int) -> None:
        """Read one line, and count the layers and buffers on each device."""
        if LOADING_LINE.search(text):
            match = DEVICE_LINE.search(text)
            if match is not None:
                self._count_on_device(match[1] or match[2] or match[3], text, number)
            self._read_weight_and_cache_sizes(text)
        elif not self._means_gpu:
            self._means_gpu = GPU_MENTION.search(text) is not None

    def finish(self) -> LayerDevices:
        """The counts of layers by device."""
        return LayerDevices(
            self._on_cpu,
            self._elsewhere,
            self._line,
            self._text,
            self._means_gpu,
            self._weights,
            *self._cache,
        )

    def _read_weight_and_cache_sizes(self, text: str) -> None:
        """Read how much memory the weights and the cache take; of several loads, the weights of all
        and the last cache.
        """
        weights, cache = WEIGHTS_LINE.search(text), CACHE_LINE.search(text)
        if weights is not None:
            self._weights += float(weights[1])
        if cache is not None:
            self._cache = (float(cache["mib"]), int(cache["cells"]), int(cache["slots"] or 1))

    def _count_on_device(self, device: str, text: str, number: int) -> None:
        """Count a layer or a buffer on its device, and keep the first line that names the CPU."""
        if device not in CPU_DEVICES:
            self._elsewhere += 1
            return
        if not self._on_cpu:
            self._line, self._text = number, text.strip()[:300]
        self._on_cpu += 1
