"""Turns question/answer rows into fixed blocks of token ids."""
import argparse
from itertools import chain

from datasets import load_dataset
from transformers import AutoTokenizer


def to_ids(batch, tok):
    texts = [f"Q: {q.strip()}\nA: {a.strip()}\n\n" for q, a in zip(batch["question"], batch["answer"])]
    return {"input_ids": tok(texts, add_special_tokens=False)["input_ids"]}


def group(batch, size):
    stream = list(chain.from_iterable(batch["input_ids"]))
    usable = len(stream) // size * size
    blocks = [stream[i : i + size] for i in range(0, usable, size)]
    return {"input_ids": blocks, "labels": [list(b) for b in blocks]}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--tokenizer", default="Qwen/Qwen2.5-1.5B")
    ap.add_argument("--data", default="data/faq.jsonl")
    ap.add_argument("--block", type=int, default=1024)
    ap.add_argument("--out", default="data/faq_blocks")
    a = ap.parse_args()

    tok = AutoTokenizer.from_pretrained(a.tokenizer)
    ds = load_dataset("json", data_files=a.data, split="train").shuffle(seed=2).train_test_split(test_size=0.05, seed=2)
    ds = ds.map(to_ids, batched=True, fn_kwargs={"tok": tok}, remove_columns=ds["train"].column_names)
    ds = ds.map(group, batched=True, batch_size=2000, fn_kwargs={"size": a.block})
    print({k: len(v) for k, v in ds.items()}, "blocks")
    ds.save_to_disk(a.out)


if __name__ == "__main__":
    main()
