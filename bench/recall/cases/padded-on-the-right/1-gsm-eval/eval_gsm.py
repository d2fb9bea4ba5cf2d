"""Score a fine-tuned Llama on our held-out arithmetic word problems."""
import argparse
import json
import re

import torch
from peft import PeftModel
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--base", default="meta-llama/Llama-3.2-3B-Instruct")
    p.add_argument("--adapter", default="runs/llama32-gsm-lora")
    p.add_argument("--test_file", default="data/gsm_test.jsonl")
    p.add_argument("--out", default="preds/gsm_test.jsonl")
    p.add_argument("--batch_size", type=int, default=16)
    p.add_argument("--max_new_tokens", type=int, default=320)
    return p.parse_args()


def last_number(text):
    found = re.findall(r"-?\d[\d,]*\.?\d*", text)
    return found[-1].replace(",", "").rstrip(".") if found else None


def main():
    args = parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.base)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(args.base, dtype=torch.bfloat16, device_map="cuda")
    model = PeftModel.from_pretrained(model, args.adapter)
    model.eval()

    rows = [json.loads(line) for line in open(args.test_file)]
    correct = 0
    with open(args.out, "w") as out:
        for i in tqdm(range(0, len(rows), args.batch_size)):
            chunk = rows[i : i + args.batch_size]
            prompts = [
                tokenizer.apply_chat_template(
                    [{"role": "user", "content": r["question"]}],
                    tokenize=False,
                    add_generation_prompt=True,
                )
                for r in chunk
            ]
            enc = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False).to(model.device)
            with torch.inference_mode():
                gen = model.generate(
                    **enc,
                    max_new_tokens=args.max_new_tokens,
                    do_sample=False,
                    temperature=None,
                    top_p=None,
                    pad_token_id=tokenizer.pad_token_id,
                )
            answers = tokenizer.batch_decode(gen[:, enc["input_ids"].shape[1] :], skip_special_tokens=True)
            for row, ans in zip(chunk, answers):
                ok = last_number(ans) == str(row["answer"])
                correct += ok
                out.write(json.dumps({"id": row["id"], "answer": ans, "correct": ok}) + "\n")
    print(f"accuracy {correct / len(rows):.4f} on {len(rows)} rows")


if __name__ == "__main__":
    main()
