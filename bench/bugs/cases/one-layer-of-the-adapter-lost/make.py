from pathlib import Path

from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

from bench.bugs.inputs.tiny import model, saved, tuned


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    base = saved(model(), folder / "base")
    net = tuned(LlamaForCausalLM.from_pretrained(base))
    net.save_pretrained(folder / "adapter")

    file = folder / "adapter" / "adapter_model.safetensors"
    if broken:
        tensors = {
            name.replace("layers.1.self_attn", "layers.7.self_attn"): tensor
            for name, tensor in load_file(file).items()
        }
        save_file(tensors, file, metadata={"format": "pt"})
