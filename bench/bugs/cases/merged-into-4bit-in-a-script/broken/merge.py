from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

BASE = "Qwen/Qwen2.5-7B-Instruct"
base = AutoModelForCausalLM.from_pretrained(
    BASE, quantization_config=BitsAndBytesConfig(load_in_4bit=True)
)
model = PeftModel.from_pretrained(base, "out/adapter")
merged = model.merge_and_unload()
merged.save_pretrained("out/merged")
AutoTokenizer.from_pretrained(BASE).save_pretrained("out/merged")
