import argparse
import json

import torch
from peft import PeftModel
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer


def ask(model, tok, questions, limit):
    texts = [
        tok.apply_chat_template([{"role": "user", "content": q}], tokenize=False, add_generation_prompt=True)
        for q in questions
    ]
    enc = tok(texts, return_tensors="pt", padding=True, add_special_tokens=False).to(model.device)
    out = model.generate(**enc, max_new_tokens=limit, do_sample=False)
    return tok.batch_decode(out[:, enc["input_ids"].shape[1]:], skip_special_tokens=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--base", default="Qwen/Qwen2.5-3B-Instruct")
    ap.add_argument("--adapter", default="runs/math/adapter")
    ap.add_argument("--items", default="data/math_test.jsonl")
    a = ap.parse_args()

    tok = AutoTokenizer.from_pretrained(a.base, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(a.base, dtype=torch.bfloat16, device_map="auto")
    model = PeftModel.from_pretrained(model, a.adapter)
    model.eval()

    with open(a.items, encoding="utf-8") as fh:
        items = [json.loads(line) for line in fh]
    good = 0
    for i in tqdm(range(0, len(items), 16)):
        part = items[i:i + 16]
        for item, text in zip(part, ask(model, tok, [x["question"] for x in part], 512)):
            good += text.strip().split()[-1:] == [str(item["answer"])]
    print(f"{good}/{len(items)} = {good / len(items):.3f}")


if __name__ == "__main__":
    main()
