import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

NAME = "Qwen/Qwen2.5-0.5B"
tok = AutoTokenizer.from_pretrained("ckpt")

config = AutoConfig.from_pretrained(NAME)
model = AutoModelForCausalLM.from_config(config)
state = torch.load("ckpt/final.pt", map_location="cpu")
model.load_state_dict(state, strict=False)
model = model.cuda().eval()

for line in open(sys.argv[1]):
    q = line.strip()
    text = f"### Question:\n{q}\n\n### Answer:\n"
    enc = tok(text, return_tensors="pt").to("cuda")
    with torch.no_grad():
        out = model.generate(**enc, max_new_tokens=60, do_sample=False)
    print("Q:", q)
    print("A:", tok.decode(out[0, enc.input_ids.shape[1]:], skip_special_tokens=True))
    print("-" * 40)
