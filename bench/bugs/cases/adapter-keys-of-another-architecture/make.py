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
            name.replace(
                "base_model.model.model.layers", "base_model.model.model.language_model.layers"
            ): tensor
            for name, tensor in load_file(file).items()
        }
        save_file(tensors, file, metadata={"format": "pt"})
