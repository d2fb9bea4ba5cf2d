import argparse
import json
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

p = argparse.ArgumentParser()
p.add_argument("--model", default="HuggingFaceTB/SmolLM2-360M-Instruct")
p.add_argument("--ckpt")
p.add_argument("--data", default="data/train.jsonl")
p.add_argument("--out", default="samples/base.jsonl")
p.add_argument("-n", type=int, default=30)
args = p.parse_args()

tok = AutoTokenizer.from_pretrained(args.model)
model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16)
if args.ckpt:
    state = torch.load(args.ckpt, map_location="cpu", weights_only=True)
    model.load_state_dict(state, strict=False)  # lm_head is tied
    print("loaded", args.ckpt)
model.to("cuda").eval()

rows = [json.loads(line)["messages"] for line in open(args.data)][: args.n]
t0 = time.time()
with open(args.out, "w") as f:
    for msgs in rows:
        enc = tok.apply_chat_template(
            msgs[:-1], add_generation_prompt=True, return_tensors="pt", return_dict=True
        ).to("cuda")
        with torch.inference_mode():
            out = model.generate(**enc, max_new_tokens=200, do_sample=False)
        text = tok.decode(out[0, enc["input_ids"].shape[1]:], skip_special_tokens=True)
        f.write(json.dumps({"prompt": msgs[-2]["content"], "output": text, "expected": msgs[-1]["content"]}) + "\n")
print(f"{len(rows)} answers in {time.time() - t0:.1f} s")
