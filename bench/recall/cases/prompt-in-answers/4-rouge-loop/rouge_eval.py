import argparse
import json

import evaluate
import torch
from datasets import load_dataset
from generation import Summarizer
from transformers import AutoModelForCausalLM, AutoTokenizer


def main():
    p = argparse.ArgumentParser()
    p.add_argument("checkpoint")
    p.add_argument("--split", default="data/news_test.jsonl")
    p.add_argument("--bs", type=int, default=8)
    p.add_argument("--report", default="rouge.json")
    a = p.parse_args()

    tok = AutoTokenizer.from_pretrained(a.checkpoint)
    tok.padding_side = "left"
    model = AutoModelForCausalLM.from_pretrained(a.checkpoint, dtype=torch.bfloat16, device_map="auto")
    summarize = Summarizer(model, tok)

    ds = load_dataset("json", data_files=a.split, split="train")
    rouge = evaluate.load("rouge")
    for batch in ds.iter(batch_size=a.bs):
        rouge.add_batch(predictions=summarize(batch["article"]), references=batch["highlights"])
    scores = {k: round(float(v) * 100, 2) for k, v in rouge.compute(use_stemmer=True).items()}
    with open(a.report, "w") as f:
        json.dump({"checkpoint": a.checkpoint, **scores}, f, indent=2)
    print(scores)


if __name__ == "__main__":
    main()
