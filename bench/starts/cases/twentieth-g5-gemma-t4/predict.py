import argparse
import json

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

ap = argparse.ArgumentParser()
ap.add_argument("--base", default="google/gemma-3-4b-it")
ap.add_argument("--adapter", default="gemma-invoices")
ap.add_argument("--inp", default="test.jsonl")
ap.add_argument("--out", default="preds.jsonl")
a = ap.parse_args()

tok = AutoTokenizer.from_pretrained(a.base, padding_side="left")
model = AutoModelForCausalLM.from_pretrained(a.base, torch_dtype=torch.float16, device_map="cuda:0", attn_implementation="eager")
model = PeftModel.from_pretrained(model, a.adapter)
model.eval()

rows = [json.loads(x) for x in open(a.inp)]
with open(a.out, "w") as f:
    for i, r in enumerate(rows):
        enc = tok.apply_chat_template(
            [{"role": "user", "content": r["prompt"]}],
            add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt",
        ).to(model.device)
        with torch.inference_mode():
            out = model.generate(**enc, max_new_tokens=200, do_sample=False)
        gen = out[0][enc["input_ids"].shape[1]:]
        if i < 3:
            print(repr(tok.decode(gen)[:400]))
        f.write(json.dumps({"prompt": r["prompt"], "prediction": tok.decode(gen, skip_special_tokens=True), "reference": r["completion"], "n_new": len(gen)}) + "\n")
