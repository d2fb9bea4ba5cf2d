"""Adds B @ A to the base weights, one layer after the other."""
import sys

import torch
import yaml
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer


def pairs(state):
    for key in state:
        if key.endswith("lora_A.weight"):
            stem = key[: -len(".lora_A.weight")]
            name = stem.removeprefix("base_model.model.")
            yield name, state[key], state[stem + ".lora_B.weight"]


@torch.no_grad()
def main(path):
    with open(path) as f:
        cfg = yaml.safe_load(f)
    scale = cfg["lora_alpha"] / cfg["lora_r"]
    model = AutoModelForCausalLM.from_pretrained(cfg["base"], dtype=torch.bfloat16)
    tok = AutoTokenizer.from_pretrained(cfg["adapter"])
    state = load_file(f"{cfg['adapter']}/adapter_model.safetensors")
    count = 0
    for name, a, b in pairs(state):
        layer = model.get_submodule(name)
        delta = b.float() @ a.float() * scale
        layer.weight.copy_((layer.weight.float() + delta).to(layer.weight.dtype))
        count += 1
    print(count, "layers changed, scale", scale)
    model.save_pretrained(cfg["out"])
    tok.save_pretrained(cfg["out"])


if __name__ == "__main__":
    main(sys.argv[1])
