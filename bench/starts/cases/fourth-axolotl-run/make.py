"""Unpacks the pairs, and builds the adapters that the run left."""

from __future__ import annotations

from pathlib import Path

from bench.starts.material import unpack_large_files, write_adapter

SIZES = {"self_attn.q_proj": (896, 896), "self_attn.v_proj": (896, 128)}


def make(target: Path) -> None:
    """Put them in place."""
    unpack_large_files(target)
    for folder in ("outputs/travel-dpo", "outputs/travel-dpo/checkpoint-38"):
        path = target / folder / "adapter_model.safetensors"
        write_adapter(path, SIZES, 24, 16, dtype="bfloat16")
