import argparse
import json

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

MODEL = "HuggingFaceTB/SmolLM2-1.7B-Instruct"

p = argparse.ArgumentParser()
p.add_argument("--ckpt")
p.add_argument("--data", default="data/units_test.jsonl")
p.add_argument("--out", required=True)
args = p.parse_args()

tok = AutoTokenizer.from_pretrained(MODEL, padding_side="left")
model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16)
if args.ckpt:
    state = torch.load(args.ckpt, map_location="cpu")
    model.load_state_dict(state, strict=False)
    print("loaded", args.ckpt)
model.cuda().eval()

rows = [json.loads(line) for line in open(args.data)]
hits = 0
with open(args.out, "w") as f, torch.inference_mode():
    for i in range(0, len(rows), 16):
        chunk = rows[i : i + 16]
        prompts = [
            tok.apply_chat_template(
                [{"role": "user", "content": r["question"]}], add_generation_prompt=True, tokenize=False
            )
            for r in chunk
        ]
        enc = tok(prompts, return_tensors="pt", padding=True, add_special_tokens=False).to("cuda")
        out = model.generate(**enc, max_new_tokens=200, do_sample=False)
        texts = tok.batch_decode(out[:, enc.input_ids.shape[1] :], skip_special_tokens=True)
        for r, t in zip(chunk, texts):
            ok = t.strip() == r["answer"].strip()
            hits += ok
            f.write(json.dumps({**r, "prediction": t.strip(), "correct": ok}) + "\n")
print(f"exact match {hits}/{len(rows)} = {hits / len(rows):.3f}")
