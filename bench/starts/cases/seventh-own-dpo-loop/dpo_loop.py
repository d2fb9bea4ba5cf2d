"""DPO without a trainer: Qwen2.5-1.5B-Instruct on preference pairs from our reviewers, one GPU.

python dpo_loop.py --pairs pairs.jsonl --out out/reviews-dpo | tee dpo.log
"""
import argparse
import json
import math
import random

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"


def read_pairs(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def encode(tokenizer, prompt, answer, max_len):
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
    )
    prompt_ids = tokenizer(text, add_special_tokens=False).input_ids
    answer_ids = tokenizer(answer + "<|im_end|>", add_special_tokens=False).input_ids
    ids = (prompt_ids + answer_ids)[:max_len]
    mask = ([0] * len(prompt_ids) + [1] * len(answer_ids))[:max_len]
    return ids, mask


class Collate:
    def __init__(self, tokenizer, max_len):
        self.tokenizer = tokenizer
        self.max_len = max_len

    def __call__(self, rows):
        encoded = [encode(self.tokenizer, r["prompt"], r["chosen"], self.max_len) for r in rows]
        encoded += [encode(self.tokenizer, r["prompt"], r["rejected"], self.max_len) for r in rows]
        n = max(len(ids) for ids, _ in encoded)
        pad = self.tokenizer.pad_token_id
        return {
            "input_ids": torch.tensor([ids + [pad] * (n - len(ids)) for ids, _ in encoded]),
            "attention_mask": torch.tensor([[1] * len(ids) + [0] * (n - len(ids)) for ids, _ in encoded]),
            "answer_mask": torch.tensor([m + [0] * (n - len(m)) for _, m in encoded]),
        }


def sequence_logps(model, batch):
    """Sum of the log probabilities of the answer tokens; first half chosen, second half rejected."""
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    logps = torch.log_softmax(logits[:, :-1].float(), dim=-1)
    targets = batch["input_ids"][:, 1:].unsqueeze(-1)
    token_logps = logps.gather(-1, targets).squeeze(-1)
    sums = (token_logps * batch["answer_mask"][:, 1:]).sum(-1)
    return sums.chunk(2)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--pairs", default="pairs.jsonl")
    p.add_argument("--out", default="out/reviews-dpo")
    p.add_argument("--beta", type=float, default=0.1)
    p.add_argument("--lr", type=float, default=1e-6)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--accumulate", type=int, default=4)
    p.add_argument("--max-len", type=int, default=1024)
    args = p.parse_args()
    torch.manual_seed(0)
    random.seed(0)

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    policy = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).cuda()
    policy.config.use_cache = False

    # frozen reference
    reference = policy
    reference.eval()

    pairs = read_pairs(args.pairs)
    loader = DataLoader(pairs, batch_size=args.batch, shuffle=True, drop_last=True,
                        collate_fn=Collate(tokenizer, args.max_len))
    updates = math.floor(len(loader) / args.accumulate) * args.epochs
    optimizer = torch.optim.AdamW(policy.parameters(), lr=args.lr, weight_decay=0.0)
    scheduler = get_cosine_schedule_with_warmup(optimizer, round(0.1 * updates), updates)
    print(f"{len(pairs)} pairs, {updates} updates", flush=True)

    step = 0
    for epoch in range(args.epochs):
        policy.train()
        sums = {"loss": 0.0, "chosen": 0.0, "rejected": 0.0, "acc": 0.0}
        for i, batch in enumerate(loader):
            batch = {k: v.cuda() for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                chosen, rejected = sequence_logps(policy, batch)
                with torch.no_grad():
                    ref_chosen, ref_rejected = sequence_logps(reference, batch)
            reward_chosen = args.beta * (chosen - ref_chosen)
            reward_rejected = args.beta * (rejected - ref_rejected)
            loss = -F.logsigmoid(reward_chosen - reward_rejected).mean()
            (loss / args.accumulate).backward()

            sums["loss"] += loss.item() / args.accumulate
            sums["chosen"] += reward_chosen.mean().item() / args.accumulate
            sums["rejected"] += reward_rejected.mean().item() / args.accumulate
            sums["acc"] += (reward_chosen > reward_rejected).float().mean().item() / args.accumulate

            if (i + 1) % args.accumulate == 0:
                norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad(set_to_none=True)
                step += 1
                print(json.dumps({
                    "step": step, "epoch": round(epoch + (i + 1) / len(loader), 3),
                    "loss": round(sums["loss"], 4),
                    "rewards/chosen": round(sums["chosen"], 4),
                    "rewards/rejected": round(sums["rejected"], 4),
                    "rewards/margins": round(sums["chosen"] - sums["rejected"], 4),
                    "rewards/accuracies": round(sums["acc"], 3),
                    "grad_norm": round(norm.item(), 3),
                    "learning_rate": scheduler.get_last_lr()[0],
                }), flush=True)
                sums = dict.fromkeys(sums, 0.0)

    policy.config.use_cache = True
    policy.save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)


if __name__ == "__main__":
    main()
