from pathlib import Path

import torch
from transformers import LlamaForCausalLM

from bench.bugs.inputs.tiny import model, saved, tuned


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    torch.manual_seed(0)
    base = saved(model(hidden_size=64).to(torch.bfloat16), folder / "base")
    net = LlamaForCausalLM.from_pretrained(base, dtype=torch.bfloat16 if broken else torch.float32)
    net = tuned(net, steps=0)
    with torch.no_grad():
        for name, weight in net.named_parameters():
            if "lora_B" in name:
                weight.normal_(0, 1e-4)
    saved(net.merge_and_unload(), folder / "model")
