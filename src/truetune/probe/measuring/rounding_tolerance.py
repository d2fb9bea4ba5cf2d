"""How far two ways to compute the same may be apart, by the precision of the computation alone.

Differences are of the largest absolute value, so that a model with large logits has no other tolerance than one with
small ones. The trade-off: a fault that moves a few small logits alone is within it. Where 16 bits are coarser than this
says, `compute_logits.allowed_difference` measures the rounding of the model itself.
"""

from __future__ import annotations

import inspect
import math
from typing import Any

import torch

# Of the largest absolute value, for up to `REFERENCE_LAYERS` layers; docs/laws.md shows what was measured.
RELATIVE_TOLERANCES = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.float16: 2e-2,
    torch.bfloat16: 5e-2,
}
REFERENCE_LAYERS = 32
QUANTIZED_PARAMETERS = ("Params4bit", "Int8Params")
# Keys that models with attention kernels take through their **kwargs.
PACKING_KEYS = (
    "cu_seq_lens_q",
    "cu_seq_lens_k",
    "max_length_q",
    "max_length_k",
    "seq_idx",
    "cu_seqlens",
)
# Elements that are compared at once, in float64: 32 MB for each of the two tensors. Chosen, not measured.
MAX_CHUNK_ELEMENTS = 4_000_000


def rounding_tolerance(model: torch.nn.Module) -> float:
    """Largest relative difference that rounding explains in this model, at the coarsest precision it computes in."""
    # Errors of layers add up like a random walk: with the root of their number.
    layers = getattr(getattr(model, "config", None), "num_hidden_layers", None) or REFERENCE_LAYERS
    return RELATIVE_TOLERANCES[coarsest_precision(model)] * max(
        1.0, math.sqrt(layers / REFERENCE_LAYERS)
    )


def coarsest_precision(model: torch.nn.Module) -> torch.dtype:
    """The coarsest dtype of a model's matrices; bfloat16 where it is quantized or computes under autocast, float16
    where float32 products are rounded to TF32."""
    parameters = list(model.parameters())
    dtypes = {p.dtype for p in parameters if p.is_floating_point() and p.dim() > 1}
    # By name: bitsandbytes need not be installed.
    if any(type(p).__name__ in QUANTIZED_PARAMETERS for p in parameters) or hasattr(
        model, "_original_forward"
    ):
        return torch.bfloat16
    coarsest = min(dtypes, key=lambda dtype: -torch.finfo(dtype).eps, default=torch.float32)
    if (
        coarsest == torch.float32
        and parameters[0].is_cuda
        and torch.get_float32_matmul_precision() != "highest"
    ):
        return torch.float16
    return coarsest if coarsest in RELATIVE_TOLERANCES else torch.bfloat16


def relative_difference(a: torch.Tensor, b: torch.Tensor) -> float:
    """Largest absolute difference over the largest absolute value of `a`: nan where either holds a nan."""
    if not a.numel():
        return 0.0
    a, b = (x.reshape(-1, x.shape[-1]) if x.dim() else x[None] for x in (a, b))
    # In pieces: logits in float64 would take eight times their memory in bfloat16 twice over.
    step = max(MAX_CHUNK_ELEMENTS // (a.numel() // len(a)), 1)
    pieces = zip(*(torch.split(x.detach(), step) for x in (a, b)), strict=True)
    maxima = [((x.double() - y.double()).abs().max(), x.double().abs().max()) for x, y in pieces]
    apart, size = (torch.stack([pair[i] for pair in maxima]).max() for i in (0, 1))
    return float(apart / size.clamp_min(1e-12))


def relative_difference_allowing_expert_routing(
    a: torch.Tensor, b: torch.Tensor, model: torch.nn.Module
) -> float:
    """`relative_difference` of (..., tokens, vocabulary) logits.

    In 16 bits a mixture of experts sends a token with two nearly equal scores to another expert by rounding alone:
    there, all but the worst tenth of the tokens are compared.
    """
    if not is_mixture_of_experts(model) or coarsest_precision(model) in (
        torch.float32,
        torch.float64,
    ):
        return relative_difference(a, b)
    a, b = a.flatten(0, -2), b.flatten(0, -2)
    if bool((a.isnan() | b.isnan()).any()):
        return float("nan")
    # Of each token its largest difference, so that a token sent elsewhere counts as one.
    apart = (a.float() - b.float()).abs().amax(-1)
    return relative_difference(*(x[apart <= apart.quantile(0.9)] for x in (a, b)))


def is_mixture_of_experts(model: torch.nn.Module) -> bool:
    """Does its configuration name several experts?"""
    config = getattr(model, "config", None)
    names = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    return any((getattr(config, name, None) or 0) > 1 for name in names)


def forward_inputs_without_labels(batch: dict[str, Any], model: torch.nn.Module) -> dict[str, Any]:
    """What of a batch the model's forward takes, without its labels."""
    base: Any = getattr(model, "get_base_model", None)
    inner = base() if base is not None else model
    parameters = inspect.signature(type(inner).forward).parameters
    loose = any(p.kind == p.VAR_KEYWORD for p in parameters.values())
    accepted = set(parameters) | (set(PACKING_KEYS) if loose else set())
    return {key: value for key, value in batch.items() if key in accepted and key != "labels"}
