"""Estimates the memory of one GPU at the moments of a training step that can be its peak.

Weights, gradients, optimizer states, activations and logits live at different times; each moment is a table of what
lives then, and the largest is the peak. The trade-off: arithmetic and no measurement, so a share is added for what the
allocator loses, and custom code in a model is not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from truetune.memory import activation_memory, logits_memory, weight_gradient_optimizer_memory
from truetune.memory.matrices_and_parameters_from_config import Architecture
from truetune.memory.memory_settings import MemorySettings

GIB = 1 << 30
"""Bytes of a GiB"""
# An assumption (docs/plan.md says so): drivers and GPUs differ by some tenths.
CUDA_CONTEXT_BYTES = 0.6 * GIB
"""CUDA itself with its kernels and cuBLAS"""
# An assumption as well: the buffers of its channels grow with the GPUs of a machine.
NCCL_BYTES = 0.4 * GIB
"""NCCL, where there are several GPUs"""
# Chosen, not measured: less calls runs fitting that fail late, in a step with longer rows; more has users change what
# they need not.
FRAGMENTATION_SHARE = 0.05
"""The share of what is allocated that the caching allocator cannot use: rounding and fragments"""

Name = Literal[
    "generation", "forward", "loss", "backward", "end of backward", "optimizer step", "evaluation"
]
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
    "engine",
    "communication",
    "CUDA",
    "margin",
)
"""In the order of a table"""


@dataclass(frozen=True, slots=True)
class Moment:
    """What a GPU holds at one moment of a step, in bytes by part."""

    name: Name
    parts: Mapping[str, float]
    """Bytes by part, without the margin"""

    @property
    def allocated(self) -> float:
        """Bytes of all tensors: what torch.cuda.max_memory_allocated shows."""
        return sum(size for part, size in self.parts.items() if part not in ("CUDA", "margin"))

    @property
    def fragmentation_bytes(self) -> float:
        """Bytes that fragmentation costs."""
        return FRAGMENTATION_SHARE * self.allocated

    @property
    def total(self) -> float:
        """All bytes on the GPU."""
        return sum(self.parts.values()) + self.fragmentation_bytes


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimate of a run's memory: the moments of a step and what they hold."""

    architecture: Architecture
    settings: MemorySettings
    moments: tuple[Moment, ...]

    @property
    def peak(self) -> Moment:
        """The moment that holds most."""
        return max(self.moments, key=lambda moment: moment.total)

    @property
    def trained_parameter_count(self) -> int:
        """The number of parameters that are trained."""
        return weight_gradient_optimizer_memory.count_trained_parameters(
            self.architecture, self.settings
        )


def estimate_memory(architecture: Architecture, settings: MemorySettings) -> Estimate:
    """Estimate the memory of one GPU, from the second step on, when the optimizer has its states."""
    tokens = settings.tokens_per_forward_pass
    # What is there at every moment.
    constant = {
        "weights": weight_gradient_optimizer_memory.weight_bytes(architecture, settings),
        "reference model": weight_gradient_optimizer_memory.reference_model_bytes(
            architecture, settings
        ),
        "optimizer": weight_gradient_optimizer_memory.optimizer_bytes(architecture, settings),
        "communication": weight_gradient_optimizer_memory.communication_bytes(
            architecture, settings
        ),
        "engine": 0.0 if settings.does_engine_sleep else settings.engine_bytes,
        "CUDA": CUDA_CONTEXT_BYTES + NCCL_BYTES * (settings.world > 1),
    }
    gradients = weight_gradient_optimizer_memory.gradient_bytes(architecture, settings)
    # With accumulation, those of the earlier passes of the step are there from the beginning.
    earlier_gradients = gradients if settings.accumulation > 1 else 0.0
    head = 0
    if settings.lora is None:
        head = architecture.vocabulary * architecture.hidden * settings.base
    # The head is the first to get its gradient, before any activation is freed.
    first_gradients = max(earlier_gradients, min(gradients, float(head)))
    activations = activation_memory.kept_activation_bytes_per_token(architecture, settings) * tokens
    activations += activation_memory.kept_expert_copy_bytes(architecture, settings)
    block = activation_memory.largest_block_bytes_per_token(architecture, settings) * tokens
    # The gradient of the sum of experts and adapter is as large as the sum.
    expert_copy = activation_memory.largest_expert_copy_bytes(architecture, settings)
    block += expert_copy
    working = activation_memory.working_gradient_bytes_per_token(architecture, settings) * tokens
    working += weight_gradient_optimizer_memory.largest_weight_bytes_when_dequantized(
        architecture, settings
    )
    working += expert_copy
    cast = weight_gradient_optimizer_memory.autocast_copy_bytes(architecture, settings)
    # Checkpointing computes one block once more at a time, and casts its weights again then.
    recomputed = block if settings.checkpointing else 0.0
    cast_in_backward = 0.0 if settings.checkpointing else cast
    logits = 0.0
    if settings.head == "full":
        logits = logits_memory.forward_logits_bytes(
            architecture, settings, settings.scored_tokens_per_forward_pass
        )
    moments = [
        Moment(
            "forward",
            {
                **constant,
                "cast weights": cast,
                "gradients": earlier_gradients,
                "activations": activations,
                "logits": logits,
            },
        ),
        Moment(
            "loss",
            {
                **constant,
                "cast weights": cast_in_backward,
                "gradients": earlier_gradients,
                "activations": activations,
                "logits": logits_memory.backward_logits_bytes(architecture, settings),
            },
        ),
        Moment(
            "backward",
            {
                **constant,
                "cast weights": cast_in_backward,
                "gradients": first_gradients,
                "activations": activations + recomputed,
                "working": working,
            },
        ),
        Moment(
            "end of backward",
            {**constant, "gradients": gradients, "activations": block, "working": working},
        ),
        Moment(
            "optimizer step",
            {
                **constant,
                "gradients": gradients,
                "working": weight_gradient_optimizer_memory.optimizer_step_bytes(
                    architecture, settings
                ),
            },
        ),
    ]
    if settings.engine:
        moments.insert(0, _generation_moment(architecture, settings, constant, cast))
    if settings.evaluates:
        moments.append(_evaluation_moment(architecture, settings, constant, cast))
    return Estimate(architecture, settings, tuple(moments))


def _generation_moment(
    architecture: Architecture, settings: MemorySettings, constant: Mapping[str, float], cast: float
) -> Moment:
    """The moment before the last sampled token, on top of what is there at every moment.

    By transformers the policy itself samples, and keeps keys and values of all rows; an engine has them in what it
    reserved. The forward pass over the prompts comes before, when the cache is small: what is larger is counted.
    """
    rows = settings.sequences_per_generation
    if settings.engine != "transformers":
        return Moment("generation", {**constant, "engine": settings.engine_bytes})
    prompt = max(0, settings.length - settings.completion)
    cached = logits_memory.kv_cache_bytes(architecture, settings, settings.length, rows)
    cached_prompts = logits_memory.kv_cache_bytes(architecture, settings, prompt, rows)
    per_token = activation_memory.working_gradient_bytes_per_token(architecture, settings)
    reading = logits_memory.working_kv_bytes(architecture, settings, settings.length, rows)
    # Either all prompts with their own cache alone, or one token of each row with the whole cache.
    cache, working = max(
        (
            (cached_prompts, rows * prompt * per_token),
            (cached, rows * per_token + reading),
        ),
        key=sum,
    )
    return Moment(
        "generation",
        {
            **constant,
            "cast weights": cast,
            "activations": working,
            "logits": logits_memory.generation_logits_bytes(architecture, settings, rows),
            "KV cache": cache,
        },
    )


def _evaluation_moment(
    architecture: Architecture, settings: MemorySettings, constant: Mapping[str, float], cast: float
) -> Moment:
    """The moment of a forward pass of the evaluation, on top of what is there at every moment."""
    tokens = (
        settings.eval_batch
        * settings.length
        * settings.sequences_per_forward_pass
        // settings.batch
    )
    # transformers returns a cache unless use_cache is off, which checkpointing switches off.
    cache = 0.0
    if not settings.checkpointing:
        cache = logits_memory.kv_cache_bytes(
            architecture, settings, settings.length, tokens // settings.length
        )
    return Moment(
        "evaluation",
        {
            **constant,
            "cast weights": cast,
            # No backward pass: what one block works with is all that lives.
            "activations": tokens
            * activation_memory.working_gradient_bytes_per_token(architecture, settings),
            "logits": logits_memory.evaluation_logits_bytes(architecture, settings),
            "KV cache": cache,
        },
    )
