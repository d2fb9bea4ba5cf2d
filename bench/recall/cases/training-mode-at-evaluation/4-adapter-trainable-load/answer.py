import argparse
import json

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer


def load(base, adapter):
    tokenizer = AutoTokenizer.from_pretrained(base, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16, device_map={"": 0})
    model = PeftModel.from_pretrained(model, adapter, is_trainable=True)
    return tokenizer, model


def batches(items, size):
    for i in range(0, len(items), size):
        yield items[i : i + size]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--base", default="Qwen/Qwen2.5-7B-Instruct")
    ap.add_argument("--adapter", default="tickets-adapter")
    ap.add_argument("--questions", default="test.jsonl")
    ap.add_argument("--out", default="answers.jsonl")
    args = ap.parse_args()
    tokenizer, model = load(args.base, args.adapter)
    with open(args.questions, encoding="utf-8") as fh:
        rows = [json.loads(x) for x in fh]
    with open(args.out, "w", encoding="utf-8") as fh, torch.inference_mode():
        for part in batches(rows, 8):
            texts = [
                tokenizer.apply_chat_template(
                    [{"role": "user", "content": r["question"]}], tokenize=False, add_generation_prompt=True
                )
                for r in part
            ]
            enc = tokenizer(texts, padding=True, add_special_tokens=False, return_tensors="pt").to(model.device)
            out = model.generate(**enc, max_new_tokens=512, do_sample=False)
            replies = tokenizer.batch_decode(out[:, enc["input_ids"].shape[1]:], skip_special_tokens=True)
            for r, reply in zip(part, replies):
                fh.write(json.dumps({"id": r["id"], "reply": reply}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
