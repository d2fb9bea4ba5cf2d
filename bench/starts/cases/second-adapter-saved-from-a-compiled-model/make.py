from pathlib import Path

from bench.starts.material import (
    chats,
    instructions,
    link_model,
    link_tokenizer,
    write_adapter,
    write_lines,
)

SIZES = {
    "self_attn.q_proj": (576, 576),
    "self_attn.k_proj": (576, 192),
    "self_attn.v_proj": (576, 192),
    "self_attn.o_proj": (576, 576),
}


def make(folder: Path) -> None:
    """An adapter whose keys have the name of torch.compile's wrapper, beside its base."""
    adapter = folder / "outputs/adapter"
    prefix = "base_model.model._orig_mod."
    write_adapter(adapter / "adapter_model.safetensors", SIZES, 30, 16, prefix=prefix)
    link_tokenizer("smollm2", adapter)
    link_model(folder / "models/SmolLM2-135M-Instruct")
    write_lines(folder / "data/train.jsonl", chats(instructions()[:240]))
