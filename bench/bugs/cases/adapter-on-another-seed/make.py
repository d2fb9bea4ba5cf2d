from pathlib import Path

from transformers import LlamaForCausalLM

from bench.bugs.inputs.tiny import model, saved, tuned


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    base = saved(model(), folder / "base")
    net = tuned(
        LlamaForCausalLM.from_pretrained(base),
        modules_to_save=["lm_head"],
        target_modules=["q_proj"],
        steps=1,
    )
    net.save_pretrained(folder / "adapter", save_embedding_layers=True)
    if broken:
        saved(model(seed=1), folder / "base")
