import argparse
import json
from pathlib import Path

from engine import make_chat


def f1(pred, gold):
    p, g = set(pred.lower().split()), set(gold.lower().split())
    both = len(p & g)
    if not both:
        return 0.0
    return 2 * both / (len(p) + len(g))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--base", default="Qwen/Qwen2.5-7B-Instruct")
    p.add_argument("--adapter", default="runs/claims-lora")
    p.add_argument("--test", default="data/claims_test.jsonl")
    args = p.parse_args()

    rows = [json.loads(x) for x in Path(args.test).read_text().splitlines() if x]
    chat = make_chat(args.base, args.adapter)
    outs = chat([[{"role": "user", "content": r["claim"]}] for r in rows])
    scores = [f1(o.outputs[0].text, r["verdict"]) for o, r in zip(outs, rows)]
    print(f"{len(rows)} rows, token F1 {sum(scores) / len(scores):.3f}")


if __name__ == "__main__":
    main()
