import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE = "meta-llama/Llama-3.1-8B-Instruct"

tokenizer = AutoTokenizer.from_pretrained("out/insurance-lora")
base = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map="cpu")
merged = PeftModel.from_pretrained(base, "out/insurance-lora").merge_and_unload()
merged.save_pretrained("out/insurance-merged")
tokenizer.save_pretrained("out/insurance-merged")
