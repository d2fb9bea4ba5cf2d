#!/usr/bin/env python
"""Translate the test set with the tuned model (vLLM) and score it."""

import argparse
import csv
import json

import sacrebleu
from transformers import AutoTokenizer
from vllm import LLM, SamplingParams

PROMPT = "Translate the following product text from German to English.\n\n{src}"


def load(path):
    rows = []
    with open(path, encoding="utf-8") as f:
        for line in f:
            r = json.loads(line)
            rows.append({"src": r["de"].strip(), "ref": r["en"].strip()})
    return rows


def translate(model_dir, rows, max_new_tokens):
    tok = AutoTokenizer.from_pretrained(model_dir)
    llm = LLM(model=model_dir, dtype="bfloat16", max_model_len=4096, seed=0)
    params = SamplingParams(temperature=0.0, max_tokens=max_new_tokens)
    conversations = [[{"role": "user", "content": PROMPT.format(src=r["src"])}] for r in rows]
    outputs = llm.chat(conversations, params)
    cut = sum(o.outputs[0].finish_reason == "length" for o in outputs)
    print(f"{len(outputs)} translations, {cut} cut at {max_new_tokens} tokens ({tok.name_or_path})")
    return [o.outputs[0].text.strip() for o in outputs]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("model")
    ap.add_argument("--test", default="data/test.jsonl")
    ap.add_argument("--out", default="predictions.csv")
    ap.add_argument("--max_new_tokens", type=int, default=512)
    ap.add_argument("--from_csv", action="store_true", help="score an existing --out again")
    args = ap.parse_args()

    if args.from_csv:
        with open(args.out, encoding="utf-8", newline="") as f:
            table = list(csv.DictReader(f))
        rows = [{"src": t["src"], "ref": t["ref"]} for t in table]
        hyps = [t["hyp"] for t in table]
    else:
        rows = load(args.test)
        hyps = translate(args.model, rows, args.max_new_tokens)
        with open(args.out, "w", encoding="utf-8", newline="") as f:
            w = csv.DictWriter(f, fieldnames=["src", "ref", "hyp"])
            w.writeheader()
            for r, h in zip(rows, hyps):
                w.writerow({"src": r["src"], "ref": r["ref"], "hyp": h})

    refs = [[r["ref"]] for r in rows]
    bleu = sacrebleu.corpus_bleu(hyps, refs)
    chrf = sacrebleu.corpus_chrf(hyps, refs)
    print(f"{args.model}: {len(hyps)} sentences")
    print(bleu)
    print(chrf)


if __name__ == "__main__":
    main()
