import argparse
import collections
import json

from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest

LABELS = ["supported", "unsupported", "not enough evidence"]
SYSTEM = (
    "You check claims. Read the passage and say whether the claim is supported, unsupported, "
    "or whether there is not enough evidence."
)


def load(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(x) for x in f if x.strip()]


def generate(a, rows):
    llm = LLM(a.base, enable_lora=True, max_lora_rank=32, max_model_len=8192, dtype="bfloat16")
    msgs = [
        [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": f"Passage:\n{r['passage']}\n\nClaim: {r['claim']}"},
        ]
        for r in rows
    ]
    outs = llm.chat(
        msgs,
        SamplingParams(temperature=0.0, max_tokens=64),
        lora_request=LoRARequest("claims", 1, a.adapter),
    )
    return [o.outputs[0].text.strip() for o in outs]


def is_correct(prediction, reference):
    return reference.lower() in prediction.lower()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--base", default="mistralai/Ministral-8B-Instruct-2410")
    p.add_argument("--adapter", default="out/claims-lora")
    p.add_argument("--test", default="claims_test.jsonl")
    p.add_argument("--out", default="preds_ministral8b_lora.jsonl")
    a = p.parse_args()

    rows = load(a.test)
    texts = generate(a, rows)

    hit, n = collections.Counter(), collections.Counter()
    with open(a.out, "w", encoding="utf-8") as f:
        for r, t in zip(rows, texts):
            assert r["label"] in LABELS
            n[r["label"]] += 1
            hit[r["label"]] += is_correct(t, r["label"])
            f.write(json.dumps({"id": r["id"], "claim": r["claim"], "prediction": t, "reference": r["label"]}) + "\n")

    print(f"accuracy {sum(hit.values()) / sum(n.values()):.3f}  ({sum(n.values())} claims)")
    for l in LABELS:
        print(f"  {l:22s} {hit[l] / n[l]:.3f}  ({n[l]})")


if __name__ == "__main__":
    main()
