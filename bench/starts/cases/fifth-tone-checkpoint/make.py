"""Builds the checkpoint's adapter, whose second matrices have hardly moved from zero, and puts its tokenizer in place."""

from __future__ import annotations

from pathlib import Path

from bench.starts.material import link_tokenizer


def make(target: Path) -> None:
    """Put them in place."""
    import torch
    from safetensors.torch import save_file

    drawn = torch.Generator().manual_seed(5)
    tensors = {}
    for layer in range(30):
        for module, width in (("q_proj", 576), ("v_proj", 192)):
            key = f"base_model.model.model.layers.{layer}.self_attn.{module}.lora_"
            tensors[f"{key}A.weight"] = torch.randn(8, 576, generator=drawn) * 0.02
            tensors[f"{key}B.weight"] = torch.randn(width, 8, generator=drawn) * 1.4e-5
    folder = target / "checkpoint-150"
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    link_tokenizer("smollm2", folder)
