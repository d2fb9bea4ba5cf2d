import json
import math
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

path = sys.argv[1]
tokenizer = AutoTokenizer.from_pretrained(path)
if tokenizer.pad_token is None:
    tokenizer.pad_token = tokenizer.eos_token
model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16, device_map="cuda:0").eval()
texts = [json.loads(line)["text"] for line in open("mails_val.jsonl")]

total, count = 0.0, 0
for i in range(0, len(texts), 16):
    enc = tokenizer(
        texts[i : i + 16],
        padding="max_length",
        truncation=True,
        max_length=512,
        return_tensors="pt",
    )
    enc = enc.to(model.device)
    with torch.no_grad():
        loss = model(**enc, labels=enc["input_ids"].clone()).loss
    n = enc["input_ids"].numel()
    total += loss.item() * n
    count += n
print(f"{path}: {count} tokens, loss {total / count:.3f}, perplexity {math.exp(total / count):.1f}")
