import argparse
import json

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="runs/triage/merged")
    ap.add_argument("--data", default="data/test.jsonl")
    ap.add_argument("--out", default="predictions.jsonl")
    ap.add_argument("--batch-size", type=int, default=32)
    args = ap.parse_args()

    tok = AutoTokenizer.from_pretrained(args.model, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16)
    model.eval()

    with open(args.data) as fh:
        rows = [json.loads(line) for line in fh]
    with open(args.out, "w") as sink:
        for i in range(0, len(rows), args.batch_size):
            part = rows[i : i + args.batch_size]
            enc = tok.apply_chat_template(
                [[{"role": "user", "content": r["complaint"]}] for r in part],
                add_generation_prompt=True,
                padding=True,
                return_dict=True,
                return_tensors="pt",
            )
            with torch.inference_mode():
                out = model.generate(**enc, max_new_tokens=128, do_sample=False)
            texts = tok.batch_decode(out[:, enc["input_ids"].shape[1]:], skip_special_tokens=True)
            for row, text in zip(part, texts):
                sink.write(json.dumps({"id": row["id"], "prediction": text.strip()}) + "\n")
            print(f"{min(i + args.batch_size, len(rows))}/{len(rows)}", flush=True)


if __name__ == "__main__":
    main()
