"""accelerate launch --num_processes 4 generate_dist.py --model out/merged --data data/test.parquet"""
import argparse
import json

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from collate import PromptCollator
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer


def encode(row, idx, tok):
    msgs = [
        {"role": "system", "content": "Translate the user text into plain English."},
        {"role": "user", "content": row["source"]},
    ]
    ids = tok.apply_chat_template(msgs, add_generation_prompt=True, tokenize=True, return_dict=True)["input_ids"]
    return {"row": idx, "input_ids": ids}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", required=True)
    ap.add_argument("--data", required=True)
    ap.add_argument("--out", default="translations.jsonl")
    ap.add_argument("--bs", type=int, default=12)
    args = ap.parse_args()

    acc = Accelerator()
    tok = AutoTokenizer.from_pretrained(args.model)
    if tok.pad_token_id is None:
        tok.pad_token = tok.eos_token
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16).to(acc.device).eval()

    raw = load_dataset("parquet", data_files=args.data, split="train")
    with acc.main_process_first():
        ds = raw.map(lambda r, i: encode(r, i, tok), with_indices=True, remove_columns=raw.column_names)
    loader = DataLoader(ds, batch_size=args.bs, collate_fn=PromptCollator(tok.pad_token_id), shuffle=False)
    loader = acc.prepare(loader)

    mine = []
    for batch in loader:
        rows = batch.pop("row").tolist()
        with torch.inference_mode():
            out = model.generate(**batch, max_new_tokens=256, num_beams=1, do_sample=False, pad_token_id=tok.pad_token_id)
        texts = tok.batch_decode(out[:, batch["input_ids"].shape[1]:], skip_special_tokens=True)
        mine.extend({"row": r, "text": t.strip()} for r, t in zip(rows, texts))

    everything = gather_object(mine)
    if acc.is_main_process:
        unique = {m["row"]: m for m in everything}
        with open(args.out, "w") as f:
            for key in sorted(unique):
                f.write(json.dumps(unique[key], ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
