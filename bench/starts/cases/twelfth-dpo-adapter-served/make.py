"""Builds the adapter that the run left."""

from __future__ import annotations

from pathlib import Path

from bench.starts.material import write_adapter

SIZES = {"self_attn.q_proj": (1536, 1536), "self_attn.v_proj": (1536, 256)}


def make(target: Path) -> None:
    """Put it in place."""
    write_adapter(target / "outputs/dpo-lora/adapter_model.safetensors", SIZES, 28, 16)
