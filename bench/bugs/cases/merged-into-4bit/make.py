from pathlib import Path

import torch
from transformers import LlamaForCausalLM

from bench.bugs.inputs.tiny import model, saved, tuned


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    torch.manual_seed(0)
    base = saved(model(hidden_size=64), folder / "base")
    net = LlamaForCausalLM.from_pretrained(base)
    if broken:
        with torch.no_grad():
            for name, weight in net.named_parameters():
                if "proj" in name:
                    blocks = weight.reshape(-1, 64)
                    scale = blocks.abs().amax(1, keepdim=True) / 7
                    weight.copy_(
                        ((blocks / scale).round().clamp(-8, 7) * scale).reshape(weight.shape)
                    )
    saved(tuned(net).merge_and_unload(), folder / "model")
