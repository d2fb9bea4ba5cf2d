"""Adds B @ A to the base weights, one layer after the other."""
import argparse
import json
import pathlib

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer


def pairs(state):
    for key in state:
        if key.endswith("lora_A.weight"):
            stem = key[: -len(".lora_A.weight")]
            name = stem.removeprefix("base_model.model.")
            yield name, state[key], state[stem + ".lora_B.weight"]


@torch.no_grad()
def main():
    p = argparse.ArgumentParser()
    p.add_argument("--adapter", type=pathlib.Path, default=pathlib.Path("adapter"))
    p.add_argument("--out", default="merged/qwen7")
    a = p.parse_args()
    cfg = json.loads((a.adapter / "adapter_config.json").read_text())
    scale = cfg["lora_alpha"] / cfg["r"]
    model = AutoModelForCausalLM.from_pretrained(cfg["base_model_name_or_path"], dtype=torch.bfloat16)
    tok = AutoTokenizer.from_pretrained(a.adapter)
    state = load_file(a.adapter / "adapter_model.safetensors")
    count = 0
    for name, low, high in pairs(state):
        layer = model.get_submodule(name)
        delta = high.float() @ low.float() * scale
        layer.weight.copy_((layer.weight.float() + delta).to(layer.weight.dtype))
        count += 1
    print(count, "layers changed, scale", scale)
    model.save_pretrained(a.out)
    tok.save_pretrained(a.out)


if __name__ == "__main__":
    main()
