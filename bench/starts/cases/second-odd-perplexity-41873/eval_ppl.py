"""Perplexity of base and tuned model on held-out manuals."""

import json
import sys

import torch
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

model_dir, path = sys.argv[1], sys.argv[2]
tokenizer = AutoTokenizer.from_pretrained(model_dir)
model = AutoModelForCausalLM.from_pretrained(
    model_dir, torch_dtype=torch.bfloat16, device_map="cuda"
)
model.eval()

texts = [json.loads(line)["text"] for line in open(path)]
texts = [t.strip() for t in texts if len(t.strip()) > 1]

scores = []
with torch.no_grad():
    for text in tqdm(texts):
        enc = tokenizer(text, return_tensors="pt", truncation=True, max_length=2048).to(
            model.device
        )
        if enc.input_ids.shape[1] < 2:
            continue
        out = model(**enc, labels=enc.input_ids)
        scores.append(torch.exp(out.loss).item())

ppl = sum(scores) / len(scores)
print(f"{model_dir}: {len(scores)} texts, ppl = {ppl:.2f}")
