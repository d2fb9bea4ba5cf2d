from pathlib import Path

from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

from bench.bugs.inputs.tiny import few_steps, model, saved


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    base = saved(model(), folder / "base")
    net = LlamaForCausalLM.from_pretrained(base)
    few_steps(net)
    saved(net, folder / "model")

    path = folder / "model" / "model.safetensors"
    if broken:
        tensors = load_file(path)
        tensors["lm_head.weight"] = tensors["lm_head.weight"][
            : len(tensors["lm_head.weight"]) // 2
        ].clone()
        save_file(tensors, path, metadata={"format": "pt"})
