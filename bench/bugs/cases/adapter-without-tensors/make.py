from pathlib import Path

from safetensors.torch import save_file
from transformers import LlamaForCausalLM

from bench.bugs.inputs.tiny import model, saved, tuned


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    base = saved(model(), folder / "base")
    net = tuned(LlamaForCausalLM.from_pretrained(base))
    net.save_pretrained(folder / "adapter")

    if broken:
        save_file({}, folder / "adapter" / "adapter_model.safetensors", metadata={"format": "pt"})
