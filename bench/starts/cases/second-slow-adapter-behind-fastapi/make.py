from pathlib import Path

from bench.starts.material import link_model, link_tokenizer, write_adapter

SIZES = {
    "self_attn.q_proj": (576, 576),
    "self_attn.k_proj": (576, 192),
    "self_attn.v_proj": (576, 192),
    "self_attn.o_proj": (576, 576),
    "mlp.gate_proj": (576, 1536),
    "mlp.up_proj": (576, 1536),
    "mlp.down_proj": (1536, 576),
}


def make(folder: Path) -> None:
    """A DoRA adapter and its base."""
    write_adapter(folder / "adapter/adapter_model.safetensors", SIZES, 30, 16, magnitudes=True)
    link_tokenizer("smollm2", folder / "adapter")
    link_model(folder / "models/SmolLM2-135M-Instruct")
