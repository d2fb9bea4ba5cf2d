"""Exact-match on the held out set: python evaluate.py conf.yaml runs/sql/adapter"""
import json
import sys

import torch
from tqdm import tqdm

from factory import backbone, read_config, tokenizer, with_trained_adapter, wrap


def batches(rows, n):
    for i in range(0, len(rows), n):
        yield rows[i:i + n]


def main(conf, adapter):
    cfg = read_config(conf)
    tok = tokenizer(cfg, side="left")

    model = backbone(cfg)
    model = with_trained_adapter(model, adapter)
    model = wrap(model, cfg)
    model.to("cuda").eval()

    with open(cfg.data.test, encoding="utf-8") as fh:
        rows = [json.loads(line) for line in fh]

    hits = 0
    for part in tqdm(list(batches(rows, cfg.eval.batch_size))):
        texts = [
            tok.apply_chat_template([{"role": "user", "content": r["question"]}], tokenize=False, add_generation_prompt=True)
            for r in part
        ]
        enc = tok(texts, padding=True, return_tensors="pt", add_special_tokens=False).to("cuda")
        with torch.inference_mode():
            out = model.generate(**enc, do_sample=False, max_new_tokens=cfg.eval.max_new_tokens)
        answers = tok.batch_decode(out[:, enc["input_ids"].size(1):], skip_special_tokens=True)
        hits += sum(a.strip() == r["sql"].strip() for a, r in zip(answers, part))
    print(f"exact match {hits / len(rows):.3f} on {len(rows)}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
