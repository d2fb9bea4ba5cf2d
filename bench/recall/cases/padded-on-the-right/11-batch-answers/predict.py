import argparse
import json

import torch
from datasets import load_dataset
from peft import PeftModel
from tqdm.auto import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer


def load(base, adapter):
    tok = AutoTokenizer.from_pretrained(adapter)
    tok.padding_side = "right"
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16, device_map="auto")
    model = PeftModel.from_pretrained(model, adapter)
    return tok, model.eval()


def chunks(items, n):
    for i in range(0, len(items), n):
        yield items[i : i + n]


@torch.inference_mode()
def answer(tok, model, questions):
    texts = [
        tok.apply_chat_template([{"role": "user", "content": q}], tokenize=False, add_generation_prompt=True)
        for q in questions
    ]
    enc = tok(texts, padding=True, add_special_tokens=False, return_tensors="pt").to(model.device)
    out = model.generate(**enc, max_new_tokens=256, do_sample=False)
    new = out[:, enc["input_ids"].shape[1]:]
    return tok.batch_decode(new, skip_special_tokens=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--base", default="Qwen/Qwen2.5-3B-Instruct")
    p.add_argument("--adapter", default="runs/faq-lora")
    p.add_argument("--test", default="data/faq_test.jsonl")
    p.add_argument("--out", default="predictions.jsonl")
    p.add_argument("--batch", type=int, default=16)
    args = p.parse_args()

    tok, model = load(args.base, args.adapter)
    rows = list(load_dataset("json", data_files=args.test, split="train"))
    with open(args.out, "w") as f:
        for group in tqdm(list(chunks(rows, args.batch))):
            for row, text in zip(group, answer(tok, model, [r["question"] for r in group])):
                f.write(json.dumps({"question": row["question"], "gold": row["answer"], "pred": text}) + "\n")


if __name__ == "__main__":
    main()
