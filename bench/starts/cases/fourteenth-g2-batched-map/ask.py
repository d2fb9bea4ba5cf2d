import sys

import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

path = "runs/support-mistral"
tok = AutoTokenizer.from_pretrained(path)
model = AutoPeftModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16, device_map="cuda")
model.eval()

for q in sys.argv[1:]:
    prompt = f"### Question:\n{q}\n\n### Answer:\n"
    enc = tok(prompt, return_tensors="pt").to(model.device)
    with torch.no_grad():
        out = model.generate(**enc, max_new_tokens=300, do_sample=False, pad_token_id=tok.pad_token_id)
    print("Q:", q)
    print("A:", tok.decode(out[0][enc["input_ids"].shape[1]:], skip_special_tokens=True))
    print("-" * 60)
