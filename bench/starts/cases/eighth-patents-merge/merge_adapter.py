#!/usr/bin/env python
"""Bake the QLoRA adapter of the patent summariser into the base so that vLLM loads one folder.

usage: python merge_adapter.py runs/patents-qlora/checkpoint-1860 export/patents-merged
"""
import shutil
import sys
from pathlib import Path

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

BASE = "mistralai/Mistral-7B-Instruct-v0.3"

# same as in training, the box has only a 12 GB card
bnb = BitsAndBytesConfig(
    load_in_4bit=True,
    bnb_4bit_quant_type="nf4",
    bnb_4bit_use_double_quant=True,
    bnb_4bit_compute_dtype=torch.bfloat16,
)


def main(adapter: str, target: str) -> None:
    out = Path(target)
    if out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True)

    base = AutoModelForCausalLM.from_pretrained(
        BASE,
        quantization_config=bnb,
        device_map={"": 0},
    )
    model = PeftModel.from_pretrained(base, adapter)
    merged = model.merge_and_unload()
    merged.save_pretrained(out, safe_serialization=True)

    tokenizer = AutoTokenizer.from_pretrained(adapter)
    tokenizer.save_pretrained(out)
    size = sum(p.stat().st_size for p in out.glob("*.safetensors")) / 2**30
    print(f"merged model in {out}: {size:.1f} GiB")


if __name__ == "__main__":
    main(*sys.argv[1:3])
