"""Answers of the tuned model on the test questions -> predictions.jsonl, and exact match."""
import json
import string
import sys

import torch
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

MODEL = "out/company-qa-merged"


def normalise(text):
    text = text.lower().strip()
    text = "".join(c for c in text if c not in string.punctuation)
    return " ".join(text.split())


def chunks(rows, n):
    for i in range(0, len(rows), n):
        yield rows[i : i + n]


@torch.inference_mode()
def main(path="data/test.jsonl", out="predictions.jsonl"):
    tokenizer = AutoTokenizer.from_pretrained(MODEL, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16, device_map="cuda:0").eval()
    rows = [json.loads(line) for line in open(path, encoding="utf-8")]

    hits = 0
    with open(out, "w", encoding="utf-8") as f:
        for part in tqdm(list(chunks(rows, 16))):
            prompts = [f"Question: {r['question']}\nAnswer:" for r in part]
            batch = tokenizer(prompts, return_tensors="pt", padding=True).to("cuda:0")
            generated = model.generate(**batch, max_new_tokens=48, do_sample=False)
            texts = tokenizer.batch_decode(generated, skip_special_tokens=True)
            for row, prompt, text in zip(part, prompts, texts):
                hits += normalise(text) == normalise(row["answer"])
                f.write(json.dumps(
                    {"prompt": prompt, "prediction": text.strip(), "reference": row["answer"]},
                    ensure_ascii=False) + "\n")
    print(f"exact match: {hits}/{len(rows)} = {hits / len(rows):.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
