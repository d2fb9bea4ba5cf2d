from pathlib import Path

from transformers import LlamaForCausalLM

from bench.bugs.inputs.tiny import few_steps, model, saved


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    base = saved(model(), folder / "base")
    net = LlamaForCausalLM.from_pretrained(base)
    few_steps(net)
    net.config.use_cache = net.generation_config.use_cache = not broken
    saved(net, folder / "model")
