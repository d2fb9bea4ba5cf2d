import argparse
import json
import re
from pathlib import Path

from vllm import LLM, SamplingParams

SYSTEM = "You are the billing assistant of Nordstrom Energi. End with a line 'Category: <name>'."


def norm(s):
    m = re.findall(r"Category:\s*([A-Za-z_ ]+)", s)
    return m[-1].strip().lower() if m else ""


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--test", default="test.jsonl")
    p.add_argument("--adapter", default=None)
    p.add_argument("--out", required=True)
    a = p.parse_args()

    rows = [json.loads(x) for x in open(a.test)]
    kw = {}
    if a.adapter:
        r = json.loads((Path(a.adapter) / "adapter_config.json").read_text())["r"]
        kw = dict(enable_lora=True, max_lora_rank=r, max_loras=1)
        print(f"adapter {a.adapter} (r={r})")
    llm = LLM(model="meta-llama/Llama-3.1-8B-Instruct", dtype="bfloat16", max_model_len=4096, seed=0, **kw)
    chats = [
        [{"role": "system", "content": SYSTEM}, {"role": "user", "content": r["question"]}] for r in rows
    ]
    outs = llm.chat(chats, SamplingParams(temperature=0.0, max_tokens=512))

    hit = 0
    with open(a.out, "w") as f:
        for r, o in zip(rows, outs):
            text = o.outputs[0].text
            ok = norm(text) == r["category"].lower()
            hit += ok
            f.write(json.dumps({"id": r["id"], "question": r["question"], "prediction": text, "reference": r["category"], "correct": ok}) + "\n")
    print(f"{a.out}: accuracy {hit / len(rows):.4f} ({hit}/{len(rows)})")


if __name__ == "__main__":
    main()
