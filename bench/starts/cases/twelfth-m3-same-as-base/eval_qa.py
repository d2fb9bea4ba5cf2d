import argparse
import json
import re

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from train_qa import BASE, LORA

ap = argparse.ArgumentParser()
ap.add_argument("--lora")
ap.add_argument("--test", default="data/qa_test.jsonl")
ap.add_argument("--out", required=True)
ap.add_argument("--batch", type=int, default=16)
args = ap.parse_args()

tok = AutoTokenizer.from_pretrained(BASE, padding_side="left")
model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map={"": 0})
if args.lora:
    model = get_peft_model(model, LoraConfig(**LORA))
    state = torch.load(args.lora, map_location="cpu")
    result = model.load_state_dict(state, strict=False)
    print(f"loaded {args.lora}: {len(state)} tensors, {len(result.missing_keys)} missing, {len(result.unexpected_keys)} unexpected")
model.eval()


def norm(s):
    return re.sub(r"[^a-z0-9.]+", " ", s.lower()).strip().rstrip(".")


rows = [json.loads(x) for x in open(args.test)]
answers = []
for i in range(0, len(rows), args.batch):
    prompts = [
        tok.apply_chat_template([{"role": "user", "content": r["question"]}], tokenize=False, add_generation_prompt=True)
        for r in rows[i : i + args.batch]
    ]
    enc = tok(prompts, return_tensors="pt", padding=True, add_special_tokens=False).to(0)
    with torch.no_grad():
        out = model.generate(**enc, max_new_tokens=128, do_sample=False, temperature=None, top_p=None, top_k=None)
    answers += tok.batch_decode(out[:, enc["input_ids"].shape[1] :], skip_special_tokens=True)

hits = 0
with open(args.out, "w") as f:
    for r, a in zip(rows, answers):
        ok = bool(re.search(rf"\b{re.escape(norm(r['answer']))}\b", norm(a)))
        hits += ok
        f.write(json.dumps({"question": r["question"], "reference": r["answer"], "prediction": a, "correct": ok}) + "\n")
print(f"accuracy {hits / len(rows):.4f} ({hits}/{len(rows)})")
