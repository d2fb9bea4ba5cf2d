"""Estimate: the memory of one GPU at the moments of a step that can be its peak."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from truetune.memory import activation_memory, logits_memory, weight_memory
from truetune.memory.architecture import Architecture
from truetune.memory.memory_settings import MemorySettings

GIB = 1 << 30
CUDA_CONTEXT_BYTES = 0.6 * GIB
"""CUDA itself with its kernels and cuBLAS"""
NCCL_BYTES = 0.4 * GIB
"""NCCL, where there are several GPUs"""
FRAGMENTATION_SHARE = 0.05
"""The share of what is allocated that the caching allocator cannot use: rounding and fragments"""

Name = Literal["forward", "loss", "backward", "end of backward", "optimizer step", "evaluation"]
PARTS = (
    "weights",
    "reference model",
    "cast weights",
    "gradients",
    "optimizer",
    "activations",
    "logits",
    "working",
    "KV cache",
    "communication",
    "CUDA",
    "margin",
)
"""In the order of a table"""


@dataclass(frozen=True, slots=True)
class Moment:
    """What is held at one moment of a step."""

    name: Name
    parts: Mapping[str, float]
    """Bytes by part, without the margin"""

    @property
    def allocated(self) -> float:
        """Bytes of tensors: what torch.cuda.max_memory_allocated shows"""
        return sum(size for part, size in self.parts.items() if part not in ("CUDA", "margin"))

    @property
    def margin(self) -> float:
        """Bytes that fragments cost"""
        return FRAGMENTATION_SHARE * self.allocated

    @property
    def total(self) -> float:
        """Bytes on the GPU"""
        return sum(self.parts.values()) + self.margin


@dataclass(frozen=True, slots=True)
class Estimate:
    """The moments of a step and what they hold."""

    architecture: Architecture
    settings: MemorySettings
    moments: tuple[Moment, ...]

    @property
    def peak(self) -> Moment:
        """The moment that holds most"""
        return max(self.moments, key=lambda moment: moment.total)

    @property
    def trained(self) -> int:
        """Parameters that are trained"""
        return weight_memory.trained_parameters(self.architecture, self.settings)


def estimate_memory(architecture: Architecture, settings: MemorySettings) -> Estimate:
    """The memory of one GPU from the second step on, when the optimizer has its states."""
    tokens = settings.tokens
    held = {
        "weights": weight_memory.weight_bytes(architecture, settings),
        "reference model": weight_memory.reference_bytes(architecture, settings),
        "optimizer": weight_memory.optimizer_bytes(architecture, settings),
        "communication": weight_memory.communication_bytes(architecture, settings),
        "CUDA": CUDA_CONTEXT_BYTES + NCCL_BYTES * (settings.world > 1),
    }
    grown = weight_memory.gradient_bytes(architecture, settings)
    before = grown if settings.accumulation > 1 else 0.0
    table = (
        architecture.vocabulary * architecture.hidden * settings.base
        if settings.lora is None
        else 0
    )
    first = max(before, min(grown, float(table)))
    kept = activation_memory.kept_activations(architecture, settings) * tokens
    block = activation_memory.largest_block(architecture, settings) * tokens
    working = activation_memory.working_gradients(
        architecture, settings
    ) * tokens + weight_memory.unpacked_bytes(architecture, settings)
    cast, again = (
        weight_memory.cast_bytes(architecture, settings),
        block if settings.checkpointing else 0.0,
    )
    stay = 0.0 if settings.checkpointing else cast
    full = settings.head == "full"
    made = logits_memory.forward_logits(architecture, settings, tokens) if full else 0.0
    moments = [
        Moment(
            "forward",
            {
                **held,
                "cast weights": cast,
                "gradients": before,
                "activations": kept,
                "logits": made,
            },
        ),
        Moment(
            "loss",
            {
                **held,
                "cast weights": stay,
                "gradients": before,
                "activations": kept,
                "logits": logits_memory.backward_logits(architecture, settings),
            },
        ),
        Moment(
            "backward",
            {
                **held,
                "cast weights": stay,
                "gradients": first,
                "activations": kept + again,
                "working": working,
            },
        ),
        Moment(
            "end of backward",
            {**held, "gradients": grown, "activations": block, "working": working},
        ),
        Moment(
            "optimizer step",
            {
                **held,
                "gradients": grown,
                "working": weight_memory.step_bytes(architecture, settings),
            },
        ),
    ]
    if settings.evaluates:
        moments.append(_evaluation_moment(architecture, settings, held, cast))
    return Estimate(architecture, settings, tuple(moments))


def _evaluation_moment(
    architecture: Architecture, settings: MemorySettings, held: Mapping[str, float], cast: float
) -> Moment:
    tokens = settings.eval_batch * settings.length * settings.sequences // settings.batch
    return Moment(
        "evaluation",
        {
            **held,
            "cast weights": cast,
            "activations": tokens * (activation_memory.working_gradients(architecture, settings)),
            "logits": logits_memory.evaluation_logits(architecture, settings),
            "KV cache": (
                0.0
                if settings.checkpointing
                else logits_memory.kv_cache(
                    architecture, settings, settings.length, tokens // settings.length
                )
            ),
        },
    )
