"""Answer the 300 test tickets with the merged model and write answers.jsonl"""

import json
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

path = "merged/ticket-llama-3.1-8b"
tok = AutoTokenizer.from_pretrained(path, padding_side="left")
tok.pad_token = tok.pad_token or "<|finetune_right_pad_id|>"
model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16, attn_implementation="sdpa")
model.eval()

rows = [json.loads(line) for line in open("test_tickets.jsonl")]
out = open("answers.jsonl", "w")
for i in range(0, len(rows), 8):
    batch = rows[i : i + 8]
    prompts = [
        tok.apply_chat_template(r["messages"][:-1], tokenize=False, add_generation_prompt=True)
        for r in batch
    ]
    enc = tok(prompts, padding=True, add_special_tokens=False, return_tensors="pt")
    start = time.time()
    with torch.inference_mode():
        ids = model.generate(
            **enc, max_new_tokens=200, do_sample=False, pad_token_id=tok.pad_token_id
        )
    new = ids[:, enc["input_ids"].shape[1] :]
    took = time.time() - start
    print(f"{i + len(batch)}/{len(rows)}  {took:.1f} s  {new.numel() / took:.1f} tok/s", flush=True)
    for r, text in zip(batch, tok.batch_decode(new, skip_special_tokens=True)):
        out.write(json.dumps({"id": r["id"], "answer": text}) + "\n")
