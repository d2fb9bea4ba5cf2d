"""Builds the adapter that the run left."""

from __future__ import annotations

from pathlib import Path

from bench.starts.material import write_adapter

SIZES = {"self_attn.q_proj": (896, 896), "self_attn.v_proj": (896, 128)}
PREFIX = "base_model.model._orig_mod."


def make(target: Path) -> None:
    """Put it in place."""
    weights = target / "adapter" / "adapter_model.safetensors"
    write_adapter(weights, SIZES, 24, 16, prefix=PREFIX)
