"""Sentiment labels from our instruction-tuned model, compared with the gold labels."""
import csv
import sys
from dataclasses import dataclass

import torch
from sklearn.metrics import classification_report
from transformers import AutoTokenizer, pipeline

TEMPLATE = """### Instruction:
Decide whether the tone of the following product comment is good, bad or mixed. Use one word.

### Comment:
{comment}

### Label:
"""


@dataclass
class Options:
    model: str = "exports/opt-1.3b-sentiment"
    test_csv: str = "data/comments_test.csv"
    batch_size: int = 32


def read_rows(path):
    with open(path, newline="") as f:
        return list(csv.DictReader(f))


def to_label(text):
    text = text.lower()
    for name in ("good", "bad", "mixed"):
        if name in text:
            return name
    return "unknown"


def main(opts):
    tokenizer = AutoTokenizer.from_pretrained(opts.model, padding_side="left")
    pipe = pipeline(
        "text-generation",
        model=opts.model,
        tokenizer=tokenizer,
        dtype=torch.float16,
        device=0,
    )
    rows = read_rows(opts.test_csv)
    prompts = [TEMPLATE.format(comment=r["comment"]) for r in rows]
    outputs = pipe(prompts, batch_size=opts.batch_size, max_new_tokens=4, do_sample=False)
    predicted = [to_label(o[0]["generated_text"]) for o in outputs]
    gold = [r["label"] for r in rows]
    print(classification_report(gold, predicted, digits=3, zero_division=0))


if __name__ == "__main__":
    main(Options(*sys.argv[1:]))
