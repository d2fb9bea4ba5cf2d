"""Reward accuracy and margin of a DPO model on the held-out pairs."""
import argparse

import torch
from torch.utils.data import DataLoader
from tqdm import tqdm
from transformers import AutoModelForCausalLM

from logps import reference_logps, sequence_logps
from pairs import PairCollator, load_pairs


def evaluate(policy, reference, loader, beta, device):
    policy.eval()
    right, margin, n = 0, 0.0, 0
    for batch in tqdm(loader):
        batch = {k: v.to(device) for k, v in batch.items()}
        rewards = {}
        with torch.autocast(device, dtype=torch.bfloat16):
            for key in ("chosen", "rejected"):
                policy_logp = sequence_logps(policy, batch, key)
                rewards[key] = beta * (policy_logp - reference_logps(reference, batch, key))
        diff = rewards["chosen"] - rewards["rejected"]
        right += (diff > 0).sum().item()
        margin += diff.sum().item()
        n += diff.numel()
    return right / n, margin / n


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--base", default="Qwen/Qwen2.5-3B-Instruct")
    ap.add_argument("--policy", default="runs/dpo/final")
    ap.add_argument("--pairs", default="data/pairs_test.jsonl")
    ap.add_argument("--beta", type=float, default=0.1)
    a = ap.parse_args()

    policy = AutoModelForCausalLM.from_pretrained(a.policy, dtype=torch.bfloat16).to("cuda")
    reference = AutoModelForCausalLM.from_pretrained(a.base, dtype=torch.bfloat16).to("cuda").eval()
    rows, tokenizer = load_pairs(a.pairs, a.base)
    loader = DataLoader(rows, batch_size=4, collate_fn=PairCollator(tokenizer))
    acc, margin = evaluate(policy, reference, loader, a.beta, "cuda")
    print(f"reward accuracy {acc:.3f}  margin {margin:.3f}")


if __name__ == "__main__":
    main()
