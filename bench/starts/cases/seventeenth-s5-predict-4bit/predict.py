#!/usr/bin/env python
# runs the tuned adapter over the test notes, writes preds.jsonl
import argparse
import json
import time
import warnings

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, logging

warnings.filterwarnings("ignore")
logging.set_verbosity_error()

BASE = "mistralai/Mistral-7B-Instruct-v0.3"

ap = argparse.ArgumentParser()
ap.add_argument("--adapter", default="runs/notes-lora/final")
ap.add_argument("--data", default="test.jsonl")
ap.add_argument("--out", default="preds.jsonl")
ap.add_argument("--batch", type=int, default=16)
args = ap.parse_args()

tok = AutoTokenizer.from_pretrained(args.adapter, padding_side="left")
if tok.pad_token is None:
    tok.pad_token = tok.unk_token

quant = BitsAndBytesConfig(
    load_in_4bit=True,
    bnb_4bit_quant_type="nf4",
    bnb_4bit_use_double_quant=True,
)
model = AutoModelForCausalLM.from_pretrained(
    BASE,
    quantization_config=quant,
    torch_dtype=torch.float16,
    attn_implementation="sdpa",
    device_map={"": 0},
)
model = PeftModel.from_pretrained(model, args.adapter)
model.eval()

rows = [json.loads(line) for line in open(args.data)]
order = sorted(range(len(rows)), key=lambda i: len(rows[i]["note"]))
answers = [None] * len(rows)

t0 = time.time()
for start in range(0, len(order), args.batch):
    ids = order[start : start + args.batch]
    prompts = [
        tok.apply_chat_template(
            [{"role": "user", "content": "Summarise this visit note for the patient:\n\n" + rows[i]["note"]}],
            tokenize=False,
            add_generation_prompt=True,
        )
        for i in ids
    ]
    batch = tok(prompts, return_tensors="pt", padding=True, add_special_tokens=False).to("cuda")
    t1 = time.time()
    with torch.inference_mode():
        out = model.generate(**batch, max_new_tokens=300, do_sample=False, pad_token_id=tok.pad_token_id)
    torch.cuda.synchronize()
    new = out[:, batch["input_ids"].shape[1] :]
    n = int((new != tok.pad_token_id).sum())
    for i, text in zip(ids, tok.batch_decode(new, skip_special_tokens=True)):
        answers[i] = text.strip()
    print(
        f"batch {start // args.batch + 1}: in {tuple(batch['input_ids'].shape)} new {n} tokens "
        f"{time.time() - t1:.1f}s  {n / (time.time() - t1):.1f} tok/s",
        flush=True,
    )

with open(args.out, "w") as f:
    for row, a in zip(rows, answers):
        f.write(json.dumps({"id": row["id"], "note": row["note"], "reference": row["summary"], "prediction": a}) + "\n")
print(f"done, {len(rows)} notes in {time.time() - t0:.0f}s")
