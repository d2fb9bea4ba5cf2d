import argparse
import json

import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

from decoding import only_new


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--adapter", default="runs/qa/adapter")
    ap.add_argument("--questions", default="data/test.jsonl")
    ap.add_argument("--out", default="predictions.jsonl")
    args = ap.parse_args()

    tok = AutoTokenizer.from_pretrained(args.adapter, padding_side="left")
    model = AutoPeftModelForCausalLM.from_pretrained(args.adapter, dtype=torch.bfloat16).to("cuda").eval()
    with open(args.questions) as fh:
        rows = [json.loads(line) for line in fh]

    with open(args.out, "w") as sink:
        for i in range(0, len(rows), 16):
            group = rows[i : i + 16]
            chats = [[{"role": "user", "content": r["question"]}] for r in group]
            enc = tok.apply_chat_template(chats, add_generation_prompt=True, padding=True,
                                          return_dict=True, return_tensors="pt").to("cuda")
            with torch.inference_mode():
                out = model.generate(**enc, max_new_tokens=512, do_sample=False)
            for row, answer in zip(group, only_new(tok, out, enc)):
                sink.write(json.dumps({"id": row["id"], "prediction": answer, "gold": row["answer"]}) + "\n")


if __name__ == "__main__":
    main()
