"""How far two ways to compute the same may be apart, by the dtype alone."""

from __future__ import annotations

from typing import Any

import torch

RELATIVE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 5e-2}
"""Of the largest absolute value; some 1,000 times the dtype's rounding for float32, some 10 for the 16-bit ones"""


def tolerance(model: torch.nn.Module) -> float:
    """Largest relative difference that rounding explains, in this model's dtype (autocast counts as bfloat16)."""
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    return RELATIVE.get(dtype, RELATIVE[torch.bfloat16])


def difference(a: torch.Tensor, b: torch.Tensor) -> float:
    """Largest absolute difference over the largest absolute value of `a`: nan where either holds a nan."""
    a, b = a.detach().double(), b.detach().double()
    return float((a - b).abs().max() / a.abs().max().clamp_min(1e-12)) if a.numel() else 0.0


def inputs_of(batch: dict[str, Any], model: torch.nn.Module) -> dict[str, Any]:
    """What of a batch the model's forward takes, without its labels."""
    import inspect

    base: Any = getattr(model, "get_base_model", None)
    inner = base() if base is not None else model
    accepted = inspect.signature(inner.forward).parameters
    return {key: value for key, value in batch.items() if key in accepted and key != "labels"}
