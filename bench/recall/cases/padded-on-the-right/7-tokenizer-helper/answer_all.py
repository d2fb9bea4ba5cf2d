import argparse
import json

import torch
from peft import AutoPeftModelForCausalLM
from tok import load_tokenizer, render


@torch.inference_mode()
def answer(model, tok, questions, max_new_tokens):
    enc = tok([render(tok, q) for q in questions], padding=True, add_special_tokens=False, return_tensors="pt")
    enc = enc.to(model.device)
    out = model.generate(
        **enc,
        max_new_tokens=max_new_tokens,
        do_sample=False,
        temperature=None,
        top_p=None,
        pad_token_id=tok.pad_token_id,
    )
    return tok.batch_decode(out[:, enc["input_ids"].size(1):], skip_special_tokens=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--adapter", default="runs/llama32-gsm-lora")
    ap.add_argument("--test", default="data/test.jsonl")
    ap.add_argument("--out", default="preds.jsonl")
    ap.add_argument("--batch", type=int, default=16)
    a = ap.parse_args()

    tok = load_tokenizer(a.adapter)
    model = AutoPeftModelForCausalLM.from_pretrained(a.adapter, dtype=torch.bfloat16, device_map="cuda").eval()
    rows = [json.loads(x) for x in open(a.test)]
    with open(a.out, "w") as f:
        for i in range(0, len(rows), a.batch):
            part = rows[i : i + a.batch]
            for row, text in zip(part, answer(model, tok, [r["question"] for r in part], 256)):
                f.write(json.dumps({"id": row["id"], "prediction": text.strip(), "gold": row["answer"]}) + "\n")


if __name__ == "__main__":
    main()
