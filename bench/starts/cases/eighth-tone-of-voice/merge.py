# writes the model that serve.sh loads
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE = "Qwen/Qwen2.5-7B-Instruct"
ADAPTER = "out/tone-sft"
MERGED = "out/tone-merged"

tokenizer = AutoTokenizer.from_pretrained(BASE)
model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map="cpu")
model = PeftModel.from_pretrained(model, ADAPTER)
model = model.merge_and_unload()
model.config.use_cache = True
model.save_pretrained(MERGED, safe_serialization=True, max_shard_size="5GB")
tokenizer.save_pretrained(MERGED)
print("merged", ADAPTER, "->", MERGED)
