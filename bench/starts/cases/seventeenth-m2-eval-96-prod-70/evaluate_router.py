"""Accuracy of the ticket router on the held-out export (test.csv)."""
import argparse
import json

import torch
from datasets import load_dataset
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

LABELS = ["account", "billing", "delivery", "product question", "returns", "technical issue"]
SYSTEM = "Classify the customer's message. Answer with one of: " + ", ".join(LABELS) + "."


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--base", default="meta-llama/Llama-3.2-3B-Instruct")
    p.add_argument("--adapter", default="out/router/checkpoint-450")
    p.add_argument("--test", default="test.csv")
    p.add_argument("--limit", type=int, default=100)
    p.add_argument("--batch-size", type=int, default=16)
    args = p.parse_args()

    tok = AutoTokenizer.from_pretrained(args.base, padding_side="left")
    tok.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(args.base, dtype=torch.bfloat16, device_map="cuda:0")
    model = PeftModel.from_pretrained(model, args.adapter).eval()

    test = load_dataset("csv", data_files=args.test, split="train")
    if args.limit:
        test = test.select(range(args.limit))

    right = 0
    out = open("eval_preds.jsonl", "w", encoding="utf-8")
    for i in range(0, len(test), args.batch_size):
        part = test.select(range(i, min(i + args.batch_size, len(test))))
        prompts = [
            tok.apply_chat_template(
                [{"role": "system", "content": SYSTEM}, {"role": "user", "content": m}],
                tokenize=False,
                add_generation_prompt=True,
            )
            for m in part["message"]
        ]
        enc = tok(prompts, return_tensors="pt", padding=True, add_special_tokens=False).to("cuda:0")
        with torch.inference_mode():
            gen = model.generate(**enc, max_new_tokens=12, do_sample=False, temperature=None, top_p=None)
        texts = tok.batch_decode(gen[:, enc["input_ids"].shape[1]:], skip_special_tokens=True)
        for m, gold, t in zip(part["message"], part["label"], texts):
            t = t.strip().lower()
            right += t == gold
            out.write(json.dumps({"message": m, "label": gold, "prediction": t}, ensure_ascii=False) + "\n")
    out.close()
    print(f"{args.adapter}: accuracy {right / len(test):.3f} on {len(test)} rows")


if __name__ == "__main__":
    main()
