"""Write the tokenised training set to disk: python prepare.py --src data/emails.jsonl --dst data/emails_tok"""
import argparse

from datasets import load_dataset
from transformers import AutoTokenizer

IGNORE = -100


def encode(row, tok, length):
    chat = [{"role": "user", "content": "Answer this email:\n" + row["email"]}]
    prompt_text = tok.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    prompt = tok(prompt_text, add_special_tokens=False)["input_ids"]
    answer = tok(row["answer"] + tok.eos_token, add_special_tokens=False)["input_ids"]
    real = prompt + answer
    missing = length - len(real)
    ids = real + [tok.pad_token_id] * missing
    labels = [IGNORE] * len(prompt) + ids[len(prompt):]
    return {"input_ids": ids, "attention_mask": [1] * len(real) + [0] * missing, "labels": labels, "n": len(real)}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="Qwen/Qwen2.5-7B-Instruct")
    ap.add_argument("--src", default="data/emails.jsonl")
    ap.add_argument("--dst", default="data/emails_tok")
    ap.add_argument("--length", type=int, default=1024)
    a = ap.parse_args()
    tok = AutoTokenizer.from_pretrained(a.model)
    ds = load_dataset("json", data_files=a.src, split="train")
    ds = ds.map(encode, fn_kwargs={"tok": tok, "length": a.length}, remove_columns=ds.column_names)
    ds = ds.filter(lambda r: r["n"] <= a.length).remove_columns("n")
    ds.save_to_disk(a.dst)
    print(ds)


if __name__ == "__main__":
    main()
