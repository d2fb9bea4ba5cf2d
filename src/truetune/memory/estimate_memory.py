"""Estimate: the memory of one GPU at the moments of a step that can be its peak."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from truetune.memory import activation_memory, logits_memory, weight_memory
from truetune.memory.architecture import Architecture
from truetune.memory.memory_settings import Settings

GIB = 1 << 30
CONTEXT = 0.6 * GIB
"""CUDA itself with its kernels and cuBLAS"""
COMMUNICATION = 0.4 * GIB
"""NCCL, where there are several GPUs"""
MARGIN = 0.05
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
        return MARGIN * self.allocated

    @property
    def total(self) -> float:
        """Bytes on the GPU"""
        return sum(self.parts.values()) + self.margin


@dataclass(frozen=True, slots=True)
class Estimate:
    """The moments of a step and what they hold."""

    architecture: Architecture
    settings: Settings
    moments: tuple[Moment, ...]

    @property
    def peak(self) -> Moment:
        """The moment that holds most"""
        return max(self.moments, key=lambda moment: moment.total)

    @property
    def trained(self) -> int:
        """Parameters that are trained"""
        return weight_memory.trained(self.architecture, self.settings)


def estimate(architecture: Architecture, settings: Settings) -> Estimate:
    """The memory of one GPU from the second step on, when the optimizer has its states."""
    tokens = settings.tokens
    held = {
        "weights": weight_memory.weights(architecture, settings),
        "reference model": weight_memory.reference(architecture, settings),
        "optimizer": weight_memory.optimizer(architecture, settings),
        "communication": weight_memory.traffic(architecture, settings),
        "CUDA": CONTEXT + COMMUNICATION * (settings.world > 1),
    }
    grown = weight_memory.gradients(architecture, settings)
    before = grown if settings.accumulation > 1 else 0.0
    table = (
        architecture.vocabulary * architecture.hidden * settings.base
        if settings.lora is None
        else 0
    )
    first = max(before, min(grown, float(table)))
    kept = activation_memory.kept(architecture, settings) * tokens
    block = activation_memory.largest(architecture, settings) * tokens
    working = activation_memory.working(architecture, settings) * tokens + weight_memory.unpacked(
        architecture, settings
    )
    cast, again = (
        weight_memory.cast(architecture, settings),
        block if settings.checkpointing else 0.0,
    )
    stay = 0.0 if settings.checkpointing else cast
    full = settings.head == "full"
    made = logits_memory.in_forward(architecture, settings, tokens) if full else 0.0
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
                "logits": logits_memory.in_backward(architecture, settings),
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
            {**held, "gradients": grown, "working": weight_memory.step(architecture, settings)},
        ),
    ]
    if settings.evaluates:
        moments.append(_evaluation(architecture, settings, held, cast))
    return Estimate(architecture, settings, tuple(moments))


def _evaluation(
    architecture: Architecture, settings: Settings, held: Mapping[str, float], cast: float
) -> Moment:
    tokens = settings.eval_batch * settings.length * settings.sequences // settings.batch
    return Moment(
        "evaluation",
        {
            **held,
            "cast weights": cast,
            "activations": tokens * (activation_memory.working(architecture, settings)),
            "logits": logits_memory.in_evaluation(architecture, settings),
            "KV cache": (
                0.0
                if settings.checkpointing
                else logits_memory.cache(
                    architecture, settings, settings.length, tokens // settings.length
                )
            ),
        },
    )
