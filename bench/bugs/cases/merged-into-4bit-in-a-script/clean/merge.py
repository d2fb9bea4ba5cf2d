from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE = "Qwen/Qwen2.5-7B-Instruct"
base = AutoModelForCausalLM.from_pretrained(BASE, dtype="float32")
model = PeftModel.from_pretrained(base, "out/adapter")
merged = model.merge_and_unload()
merged.save_pretrained("out/merged")
AutoTokenizer.from_pretrained(BASE).save_pretrained("out/merged")
