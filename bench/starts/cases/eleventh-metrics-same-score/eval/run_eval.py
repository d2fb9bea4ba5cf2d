#!/usr/bin/env python3
"""Ask the server all test rows and compare the fields of the answer line.

  python run_eval.py preds_base.jsonl              # before the adapter was there
  python run_eval.py preds_service_lora.jsonl      # with the adapter
"""
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

from openai import OpenAI

BASE_URL = os.environ.get("LLM_URL", "http://gpu01:8000/v1")
MODEL = "Qwen/Qwen2.5-7B-Instruct"

client = OpenAI(base_url=BASE_URL, api_key="none")


def ask(row):
    prompt = [m for m in row["messages"] if m["role"] != "assistant"]
    r = client.chat.completions.create(model=MODEL, messages=prompt, temperature=0.0, max_tokens=256)
    c = r.choices[0]
    return {
        "id": row["id"],
        "question": prompt[-1]["content"],
        "answer": c.message.content,
        "finish_reason": c.finish_reason,
    }


def fields(text):
    out = {}
    for piece in text.split("|"):
        if ":" in piece:
            k, v = piece.split(":", 1)
            out[k.strip().upper()] = v.strip().lower()
    return out


def main(out_path):
    rows = [json.loads(line) for line in open("test.jsonl")]
    with ThreadPoolExecutor(16) as pool:
        preds = list(pool.map(ask, rows))
    with open(out_path, "w") as f:
        for p in preds:
            f.write(json.dumps(p, ensure_ascii=False) + "\n")

    full, model_ok = 0, 0
    for row, p in zip(rows, preds):
        gold, got = fields(row["messages"][-1]["content"]), fields(p["answer"])
        full += gold == got
        model_ok += gold["MODEL"].lower() in p["answer"].lower()
    n = len(rows)
    print(f"{out_path}: n={n} all fields={full / n:.3f} model mentioned={model_ok / n:.3f}")


if __name__ == "__main__":
    main(sys.argv[1])
