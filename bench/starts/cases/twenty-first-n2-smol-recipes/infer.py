import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE = "HuggingFaceTB/SmolLM2-360M-Instruct"


def load(path):
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    state = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"], strict=False)
    print(f"loaded {path} (epoch {state['epoch'] + 1}, val_loss {state['val_loss']:.4f})")
    return model.cuda().eval()


tok = AutoTokenizer.from_pretrained(BASE)
model = load(sys.argv[1])
out = open("answers.jsonl", "w")
for line in open("questions.txt"):
    q = line.strip()
    enc = tok.apply_chat_template(
        [{"role": "user", "content": q}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    ).to("cuda")
    with torch.inference_mode():
        y = model.generate(**enc, max_new_tokens=160, do_sample=False)
    text = tok.decode(y[0, enc["input_ids"].shape[1]:], skip_special_tokens=True)
    out.write(json.dumps({"prompt": q, "prediction": text}) + "\n")
