import sys

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from settings import ADAPTER, BASE, wrap

tok = AutoTokenizer.from_pretrained(ADAPTER)
model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map="cuda")
model = PeftModel.from_pretrained(model, ADAPTER).eval()

enc = tok(wrap(sys.argv[1]), return_tensors="pt").to(model.device)
with torch.inference_mode():
    out = model.generate(**enc, max_new_tokens=400)
print(tok.decode(out[0][enc["input_ids"].shape[1]:], skip_special_tokens=True).strip())
