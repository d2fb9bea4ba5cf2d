import argparse
import json

import torch
from datasets import load_dataset
from peft import AutoPeftModelForCausalLM
from tqdm.auto import tqdm
from transformers import AutoTokenizer


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--run", default="runs/minutes-lora")
    p.add_argument("--data", default="data/minutes_test.jsonl")
    p.add_argument("--out", default="summaries.jsonl")
    p.add_argument("--batch_size", type=int, default=8)
    p.add_argument("--max_new_tokens", type=int, default=400)
    return p.parse_args()


def prompt(tok, text):
    return tok.apply_chat_template(
        [{"role": "user", "content": f"Summarise these minutes:\n\n{text}"}],
        tokenize=False,
        add_generation_prompt=True,
    )


@torch.no_grad()
def main():
    args = parse_args()
    tok = AutoTokenizer.from_pretrained(args.run, padding_side="left")
    model = AutoPeftModelForCausalLM.from_pretrained(args.run, dtype=torch.bfloat16, device_map="auto")
    model.eval()

    rows = list(load_dataset("json", data_files=args.data, split="train"))
    with open(args.out, "w") as f:
        for i in tqdm(range(0, len(rows), args.batch_size)):
            group = rows[i : i + args.batch_size]
            enc = tok(
                [prompt(tok, r["minutes"]) for r in group],
                padding=True,
                add_special_tokens=False,
                return_tensors="pt",
            ).to(model.device)
            out = model.generate(
                **enc,
                max_new_tokens=args.max_new_tokens,
                do_sample=False,
                use_cache=False,
            )
            texts = tok.batch_decode(out[:, enc["input_ids"].shape[1]:], skip_special_tokens=True)
            for r, t in zip(group, texts):
                f.write(json.dumps({"id": r["id"], "summary": t.strip()}) + "\n")


if __name__ == "__main__":
    main()
