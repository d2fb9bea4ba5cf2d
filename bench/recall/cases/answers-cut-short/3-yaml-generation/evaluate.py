import json
import re
import sys

import torch
from omegaconf import OmegaConf
from transformers import AutoModelForCausalLM, AutoTokenizer


def final_number(text):
    m = re.search(r"####\s*(-?[\d,.]+)", text)
    return m.group(1).replace(",", "").rstrip(".") if m else None


def main(path="eval.yaml"):
    cfg = OmegaConf.load(path)
    tokenizer = AutoTokenizer.from_pretrained(cfg.model, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(cfg.model, dtype=torch.bfloat16, device_map="cuda").eval()
    gen = OmegaConf.to_container(cfg.generation)
    with open(cfg.data, encoding="utf-8") as fh:
        rows = [json.loads(x) for x in fh]
    hits = 0
    for i in range(0, len(rows), cfg.batch_size):
        part = rows[i : i + cfg.batch_size]
        texts = [
            tokenizer.apply_chat_template(
                [{"role": "user", "content": f"{cfg.prompt}\n\n{r['question']}"}],
                tokenize=False, add_generation_prompt=True,
            )
            for r in part
        ]
        enc = tokenizer(texts, padding=True, add_special_tokens=False, return_tensors="pt").to("cuda")
        with torch.inference_mode():
            out = model.generate(**enc, **gen)
        replies = tokenizer.batch_decode(out[:, enc["input_ids"].shape[1]:], skip_special_tokens=True)
        hits += sum(final_number(t) == r["answer"] for t, r in zip(replies, part))
    with open(cfg.report, "w") as fh:
        json.dump({"n": len(rows), "accuracy": hits / len(rows)}, fh)
    print(hits / len(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
