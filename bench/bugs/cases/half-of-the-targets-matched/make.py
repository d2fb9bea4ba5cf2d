from pathlib import Path

from transformers import LlamaForCausalLM

from bench.bugs.inputs.tiny import model, saved, tuned


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    base = saved(model(), folder / "base")
    net = tuned(
        LlamaForCausalLM.from_pretrained(base),
        target_modules=["q_proj", "v_prjo" if broken else "v_proj"],
    )
    net.save_pretrained(folder / "adapter")
