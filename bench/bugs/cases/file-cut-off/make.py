from pathlib import Path

from transformers import LlamaForCausalLM

from bench.bugs.inputs.tiny import few_steps, model, saved


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    base = saved(model(), folder / "base")
    net = LlamaForCausalLM.from_pretrained(base)
    few_steps(net)
    saved(net, folder / "model")

    path = folder / "model" / "model.safetensors"
    if broken:
        path.write_bytes(path.read_bytes()[:-20000])
