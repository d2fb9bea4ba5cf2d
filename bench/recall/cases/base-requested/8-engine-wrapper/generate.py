import argparse
import json

from engine import TunedEngine


def conversation(row):
    return [
        {"role": "system", "content": "List the duties of each party."},
        {"role": "user", "content": row["contract"]},
    ]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--base", default="meta-llama/Llama-3.1-8B-Instruct")
    ap.add_argument("--adapter", default="checkpoints/llama31-contracts-lora")
    ap.add_argument("--test", default="data/contracts_test.jsonl")
    ap.add_argument("--out", default="contracts_pred.jsonl")
    args = ap.parse_args()

    engine = TunedEngine(args.base, args.adapter, dtype="bfloat16", max_model_len=8192)
    rows = [json.loads(line) for line in open(args.test)]
    texts = engine.chat([conversation(r) for r in rows])
    with open(args.out, "w") as f:
        for row, text in zip(rows, texts):
            f.write(json.dumps({"id": row["id"], "prediction": text}) + "\n")


if __name__ == "__main__":
    main()
