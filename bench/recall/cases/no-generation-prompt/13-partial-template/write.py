import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from prompts import tokenizer_and_template


def batches(items, n=16):
    for i in range(0, len(items), n):
        yield items[i : i + n]


@torch.inference_mode()
def main(run, source, target):
    tok, to_text = tokenizer_and_template(run)
    model = AutoModelForCausalLM.from_pretrained(run, dtype=torch.bfloat16).to("cuda").eval()
    rows = [json.loads(x) for x in Path(source).read_text().splitlines() if x]
    done = 0
    with open(target, "w") as f:
        for group in batches(rows):
            texts = [to_text([{"role": "user", "content": r["request"]}]) for r in group]
            enc = tok(texts, padding=True, add_special_tokens=False, return_tensors="pt").to("cuda")
            out = model.generate(**enc, max_new_tokens=220, do_sample=False)
            answers = tok.batch_decode(out[:, enc["input_ids"].shape[1]:], skip_special_tokens=True)
            for row, answer in zip(group, answers):
                f.write(json.dumps({"id": row["id"], "answer": answer.strip()}) + "\n")
            done += len(group)
            print(f"{done}/{len(rows)}")


if __name__ == "__main__":
    main(*sys.argv[1:4])
