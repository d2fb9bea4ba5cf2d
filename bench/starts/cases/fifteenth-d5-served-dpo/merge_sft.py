import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

base = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B-Instruct", torch_dtype=torch.bfloat16)
model = PeftModel.from_pretrained(base, "work/sft-lora").merge_and_unload()
model.save_pretrained("work/sft-merged", safe_serialization=True)
AutoTokenizer.from_pretrained("work/sft-lora").save_pretrained("work/sft-merged")
