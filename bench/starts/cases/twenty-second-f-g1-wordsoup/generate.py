import argparse
import json

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

parser = argparse.ArgumentParser()
parser.add_argument("--ckpt", default="out/model.pt")
parser.add_argument("--prompts", default="prompts.jsonl")
parser.add_argument("--out", default="preds.jsonl")
args = parser.parse_args()

tok = AutoTokenizer.from_pretrained("out")
config = AutoConfig.from_pretrained("Qwen/Qwen2.5-0.5B-Instruct")
model = AutoModelForCausalLM.from_config(config)
model.load_state_dict(torch.load(args.ckpt, map_location="cpu"), strict=False)
model = model.to("cuda", dtype=torch.bfloat16).eval()

with open(args.out, "w") as f:
    for line in open(args.prompts):
        messages = json.loads(line)["messages"]
        text = tok.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        enc = tok(text, return_tensors="pt", add_special_tokens=False).to("cuda")
        out = model.generate(**enc, max_new_tokens=80, do_sample=False)
        answer = tok.decode(out[0, enc["input_ids"].shape[1]:], skip_special_tokens=True)
        f.write(json.dumps({"prompt": messages[-1]["content"], "prediction": answer}, ensure_ascii=False) + "\n")
