import argparse
import csv

import torch
from transformers import AutoTokenizer

from model import ReviewScorer


@torch.no_grad()
def score(texts, model, tokenizer, device, size=32):
    out = []
    for i in range(0, len(texts), size):
        enc = tokenizer(
            texts[i : i + size], padding=True, truncation=True, max_length=512, return_tensors="pt"
        ).to(device)
        logits = model(enc["input_ids"], enc["attention_mask"])
        out.extend((logits.argmax(-1) + 1).tolist())
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--weights", default="scorer.pt")
    ap.add_argument("--infile", default="reviews.csv")
    ap.add_argument("--outfile", default="scored.csv")
    args = ap.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained("FacebookAI/roberta-base")
    model = ReviewScorer().to(device)
    model.load_state_dict(torch.load(args.weights, map_location=device, weights_only=True))
    with open(args.infile, newline="", encoding="utf-8") as fh:
        rows = list(csv.DictReader(fh))
    stars = score([r["text"] for r in rows], model, tokenizer, device)
    with open(args.outfile, "w", newline="", encoding="utf-8") as fh:
        writer = csv.writer(fh)
        writer.writerow(["id", "stars"])
        writer.writerows((r["id"], s) for r, s in zip(rows, stars))


if __name__ == "__main__":
    main()
