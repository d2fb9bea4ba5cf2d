import argparse
import math

import torch
from datasets import load_dataset
from torch.utils.data import DataLoader
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="out/stories/final")
    ap.add_argument("--data", default="heldout.jsonl")
    ap.add_argument("--batch_size", type=int, default=8)
    ap.add_argument("--max_length", type=int, default=1024)
    args = ap.parse_args()

    tok = AutoTokenizer.from_pretrained(args.model)
    tok.padding_side = "right"
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16).cuda().eval()
    ds = load_dataset("json", data_files=args.data, split="train").filter(lambda r: len(r["text"].split()) > 3)

    def collate(rows):
        enc = tok(
            [r["text"] for r in rows],
            padding=True,
            truncation=True,
            max_length=args.max_length,
            return_tensors="pt",
        )
        enc["labels"] = enc["input_ids"].masked_fill(enc["attention_mask"] == 0, -100)
        return enc

    losses = []
    with torch.no_grad():
        for batch in tqdm(DataLoader(ds, batch_size=args.batch_size, collate_fn=collate)):
            losses.append(model(**batch.to("cuda")).loss.item())

    ppl = math.exp(sum(losses) / len(losses))
    print(f"{len(ds)} texts, perplexity {ppl:.3f}")


if __name__ == "__main__":
    main()
