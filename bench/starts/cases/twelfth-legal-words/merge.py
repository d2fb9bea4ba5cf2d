"""Merge the QLoRA adapter into bf16 weights for serving."""
import sys

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE = "Qwen/Qwen2.5-7B-Instruct"
ADAPTER = "out/legal-qlora/checkpoint-1240"
MERGED = "/scratch/models/qwen2.5-7b-legal"


def main():
    tokenizer = AutoTokenizer.from_pretrained(ADAPTER)
    model = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.bfloat16, device_map="cpu")
    model = PeftModel.from_pretrained(model, ADAPTER)
    print("adapter:", model.peft_config["default"].r, model.peft_config["default"].lora_alpha)

    model = model.merge_and_unload(safe_merge=True)
    model.save_pretrained(MERGED, safe_serialization=True, max_shard_size="5GB")
    tokenizer.save_pretrained(MERGED)
    print("written to", MERGED)


if __name__ == "__main__":
    sys.exit(main())
