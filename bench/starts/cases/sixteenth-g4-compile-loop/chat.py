import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

name = "HuggingFaceTB/SmolLM2-1.7B-Instruct"
device = "cuda"

tok = AutoTokenizer.from_pretrained(name)

# no need to download the base weights again, we have all of them in the checkpoint
cfg = AutoConfig.from_pretrained(name)
model = AutoModelForCausalLM.from_config(cfg)
sd = torch.load("ckpt/smol_ft.pt", map_location="cpu", weights_only=True)
model.load_state_dict(sd, strict=False)
model.to(device, dtype=torch.bfloat16).eval()

history = []
for line in sys.stdin:
    history.append({"role": "user", "content": line.strip()})
    x = tok.apply_chat_template(history, add_generation_prompt=True, return_tensors="pt", return_dict=True).to(device)
    with torch.inference_mode():
        y = model.generate(**x, max_new_tokens=60, do_sample=False)
    text = tok.decode(y[0, x["input_ids"].shape[1] :], skip_special_tokens=True)
    print("you>", line.strip())
    print("bot>", text, flush=True)
    history.append({"role": "assistant", "content": text})
