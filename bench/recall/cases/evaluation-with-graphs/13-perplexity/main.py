import argparse

import torch
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq

from perplexity import perplexity


def build(tok, path):
    ds = load_dataset("json", data_files=path, split="train")

    def encode(row):
        head = tok.apply_chat_template(
            [{"role": "user", "content": row["prompt"]}], tokenize=False, add_generation_prompt=True
        )
        a = tok(head, add_special_tokens=False)["input_ids"]
        b = tok(head + row["response"] + tok.eos_token, add_special_tokens=False)["input_ids"]
        return {"input_ids": b, "attention_mask": [1] * len(b), "labels": [-100] * len(a) + b[len(a):]}

    ds = ds.map(encode, remove_columns=ds.column_names)
    return DataLoader(ds, batch_size=16, collate_fn=DataCollatorForSeq2Seq(tok))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("run")
    p.add_argument("--data", default="data/test.jsonl")
    args = p.parse_args()
    tok = AutoTokenizer.from_pretrained(args.run)
    model = AutoModelForCausalLM.from_pretrained(args.run, dtype=torch.bfloat16).to("cuda").eval()
    loader = build(tok, args.data)
    with torch.inference_mode():
        print(f"perplexity {perplexity(model, loader):.3f}")


if __name__ == "__main__":
    main()
