import argparse

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

ap = argparse.ArgumentParser()
ap.add_argument("--base", default="Qwen/Qwen2.5-7B-Instruct")
ap.add_argument("--adapter", default="out/support-lora")
ap.add_argument("--out", default="out/support-merged")
a = ap.parse_args()

base = AutoModelForCausalLM.from_pretrained(a.base, dtype=torch.bfloat16, device_map="cpu")
model = PeftModel.from_pretrained(base, a.adapter)
model = model.merge_and_unload()
model.save_pretrained(a.out, safe_serialization=True)
AutoTokenizer.from_pretrained(a.adapter).save_pretrained(a.out)
print("merged ->", a.out)
