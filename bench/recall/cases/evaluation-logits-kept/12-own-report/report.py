import argparse
import json

import torch
import torch.nn.functional as F
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer


class Report:
    def __init__(self):
        self.logits, self.targets = [], []

    def add(self, logits, targets):
        keep = targets[:, 1:] != -100
        self.logits.append(logits[:, :-1][keep].float().cpu())
        self.targets.append(targets[:, 1:][keep].cpu())

    def result(self):
        logits = torch.cat(self.logits)
        targets = torch.cat(self.targets)
        top5 = logits.topk(5, dim=-1).indices
        return {
            "loss": F.cross_entropy(logits, targets).item(),
            "top1": (logits.argmax(-1) == targets).float().mean().item(),
            "top5": (top5 == targets[:, None]).any(-1).float().mean().item(),
            "tokens": targets.numel(),
        }


def collate(rows, tok):
    heads, texts = [], []
    for r in rows:
        head = tok.apply_chat_template(
            [{"role": "user", "content": r["source"]}], tokenize=False, add_generation_prompt=True
        )
        heads.append(len(tok(head, add_special_tokens=False)["input_ids"]))
        texts.append(head + r["target"] + tok.eos_token)
    enc = tok(texts, padding=True, add_special_tokens=False, return_tensors="pt")
    labels = enc["input_ids"].masked_fill(enc["attention_mask"] == 0, -100)
    for i, n in enumerate(heads):
        labels[i, :n] = -100
    return enc, labels


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--run", required=True)
    p.add_argument("--data", default="data/translation_dev.jsonl")
    p.add_argument("--out", default="report.json")
    args = p.parse_args()

    tok = AutoTokenizer.from_pretrained(args.run, padding_side="right")
    model = AutoModelForCausalLM.from_pretrained(args.run, dtype=torch.bfloat16).cuda().eval()
    rows = load_dataset("json", data_files=args.data, split="train")
    loader = DataLoader(rows, batch_size=16, collate_fn=lambda b: collate(b, tok))

    report = Report()
    with torch.no_grad():
        for enc, labels in loader:
            enc = enc.to("cuda")
            report.add(model(**enc).logits, labels.to("cuda"))
    with open(args.out, "w") as f:
        json.dump(report.result(), f, indent=2)


if __name__ == "__main__":
    main()
