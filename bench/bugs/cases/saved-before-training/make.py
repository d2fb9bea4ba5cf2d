from pathlib import Path

from transformers import LlamaForCausalLM

from bench.bugs.inputs.tiny import few_steps, model, saved


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    base = saved(model(), folder / "base")
    net = LlamaForCausalLM.from_pretrained(base)
    if not broken:
        few_steps(net)
    saved(net, folder / "model")
