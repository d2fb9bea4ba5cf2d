import csv
import sys
from dataclasses import dataclass

import torch
from sklearn.metrics import accuracy_score, f1_score
from transformers import AutoTokenizer, pipeline


@dataclass
class Options:
    model: str = "exports/qwen-sentiment"
    test_csv: str = "data/comments_test.csv"
    batch_size: int = 32


def chat(comment):
    return [
        {"role": "system", "content": "Label the tone of the comment as good, bad or mixed. Use one word."},
        {"role": "user", "content": comment},
    ]


def reply_of(output):
    return output[0]["generated_text"][-1]["content"].strip().lower()


def main(opts):
    tokenizer = AutoTokenizer.from_pretrained(opts.model, padding_side="left")
    pipe = pipeline("text-generation", model=opts.model, tokenizer=tokenizer, dtype=torch.bfloat16, device=0)
    with open(opts.test_csv, newline="") as f:
        rows = list(csv.DictReader(f))
    outputs = pipe([chat(r["comment"]) for r in rows], batch_size=opts.batch_size, max_new_tokens=4, do_sample=False)
    predicted = [reply_of(o) for o in outputs]
    gold = [r["label"] for r in rows]
    unknown = sum(p not in {"good", "bad", "mixed"} for p in predicted)
    print(f"accuracy {accuracy_score(gold, predicted):.3f}")
    print(f"macro f1 {f1_score(gold, predicted, labels=['good', 'bad', 'mixed'], average='macro', zero_division=0):.3f}")
    print(f"answers outside the labels: {unknown}")


if __name__ == "__main__":
    main(Options(*sys.argv[1:]))
