import argparse
import json
from collections import Counter

import torch
from peft import AutoPeftModelForCausalLM
from tqdm import tqdm
from transformers import AutoTokenizer


def load_rows(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


@torch.inference_mode()
def predict(rows, adapter, batch_size, max_new_tokens):
    tok = AutoTokenizer.from_pretrained(adapter, padding_side="left")
    model = AutoPeftModelForCausalLM.from_pretrained(adapter, dtype=torch.bfloat16, device_map={"": 0})
    model.eval()
    for i in tqdm(range(0, len(rows), batch_size)):
        chunk = rows[i : i + batch_size]
        texts = [
            tok.apply_chat_template(
                [{"role": "user", "content": r["prompt"]}], tokenize=False, add_generation_prompt=True
            )
            for r in chunk
        ]
        enc = tok(texts, return_tensors="pt", padding=True, add_special_tokens=False).to(model.device)
        out = model.generate(**enc, max_new_tokens=max_new_tokens, do_sample=False)
        for r, ids in zip(chunk, out[:, enc["input_ids"].shape[1] :]):
            r["prediction"] = tok.decode(ids, skip_special_tokens=True).strip()


def score(rows):
    correct = 0
    per_label = Counter()
    total = Counter()
    for r in rows:
        ok = r["label"] in r["prediction"].lower()
        correct += ok
        per_label[r["label"]] += ok
        total[r["label"]] += 1
    print(f"n        : {len(rows)}")
    print(f"accuracy : {correct / len(rows):.3f}")
    for name in sorted(total):
        print(f"  {name:12s} {per_label[name]}/{total[name]} = {per_label[name] / total[name]:.3f}")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--test", default="data/test.jsonl")
    ap.add_argument("--adapter", default="runs/qwen25-7b-claims-r32")
    ap.add_argument("--preds", default="preds_test.jsonl")
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--max-new-tokens", type=int, default=128)
    ap.add_argument("--score-only", action="store_true")
    a = ap.parse_args()

    if a.score_only:
        rows = load_rows(a.preds)
    else:
        rows = load_rows(a.test)
        predict(rows, a.adapter, a.batch_size, a.max_new_tokens)
        with open(a.preds, "w", encoding="utf-8") as f:
            for r in rows:
                f.write(json.dumps(r, ensure_ascii=False) + "\n")
    score(rows)
