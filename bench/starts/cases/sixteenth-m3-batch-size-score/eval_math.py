import argparse
import json
import re

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

ap = argparse.ArgumentParser()
ap.add_argument("--base", default="Qwen/Qwen2.5-3B-Instruct")
ap.add_argument("--adapter", default="runs/math-sft")
ap.add_argument("--file", default="test.jsonl")
ap.add_argument("--batch-size", type=int, default=16)
ap.add_argument("--out", default="preds.jsonl")
args = ap.parse_args()

tok = AutoTokenizer.from_pretrained(args.adapter)
tok.padding_side = "right"
model = AutoModelForCausalLM.from_pretrained(args.base, dtype=torch.bfloat16, device_map="cuda")
model = PeftModel.from_pretrained(model, args.adapter)
model.eval()

SYSTEM = "Solve the problem. Write your working, then a last line 'Answer: <number>'."
rows = [json.loads(l) for l in open(args.file)]


def prompt(r):
    msgs = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": r["question"]}]
    return tok.apply_chat_template(msgs, tokenize=False, add_generation_prompt=True)


def parse(text):
    m = re.findall(r"Answer:\s*(-?[\d,\.]+)", text)
    return m[-1].replace(",", "").rstrip(".") if m else None


right = 0
with open(args.out, "w") as f:
    for i in range(0, len(rows), args.batch_size):
        chunk = rows[i : i + args.batch_size]
        enc = tok([prompt(r) for r in chunk], return_tensors="pt", padding=True, add_special_tokens=False).to(model.device)
        with torch.inference_mode():
            out = model.generate(**enc, max_new_tokens=400, do_sample=False)
        texts = tok.batch_decode(out[:, enc.input_ids.shape[1] :], skip_special_tokens=True)
        for j, (r, t) in enumerate(zip(chunk, texts)):
            right += parse(t) == r["answer"]
            f.write(json.dumps({"idx": i + j, "question": r["question"], "prediction": t, "reference": r["answer"]}) + "\n")
print(f"batch size {args.batch_size}: accuracy {right / len(rows):.3f} ({right}/{len(rows)})")
