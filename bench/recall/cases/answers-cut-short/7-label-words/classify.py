import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

MODEL = "runs/sentiment-tags"
LABELS = ("positive", "neutral", "negative")
ASK = "Give the sentiment of the review in one word: positive, neutral or negative.\n\nReview: {text}"


def main(path):
    tokenizer = AutoTokenizer.from_pretrained(MODEL, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16, device_map="cuda").eval()
    with open(path, encoding="utf-8") as fh:
        rows = [json.loads(x) for x in fh]
    good = unknown = 0
    for i in range(0, len(rows), 32):
        part = rows[i : i + 32]
        texts = [
            tokenizer.apply_chat_template(
                [{"role": "user", "content": ASK.format(text=r["text"])}], tokenize=False, add_generation_prompt=True
            )
            for r in part
        ]
        enc = tokenizer(texts, padding=True, add_special_tokens=False, return_tensors="pt").to("cuda")
        with torch.inference_mode():
            out = model.generate(**enc, max_new_tokens=6, do_sample=False)
        for r, reply in zip(part, tokenizer.batch_decode(out[:, enc["input_ids"].shape[1]:], skip_special_tokens=True)):
            label = reply.strip().lower().rstrip(".")
            good += label == r["label"]
            unknown += label not in LABELS
    print(f"accuracy {good / len(rows):.3f}, outside the labels {unknown}")


if __name__ == "__main__":
    main(sys.argv[1])
