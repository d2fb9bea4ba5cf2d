"""DPO without a trainer library: clause rewrites for the notary's office, Llama-3.2-1B-Instruct, all weights.

    python dpo_loop.py --pairs data/clauses.jsonl --out ckpt/clauses-dpo
"""
import argparse
import copy
import json
import random
import time

import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, AutoTokenizer

parser = argparse.ArgumentParser()
parser.add_argument("--base", default="meta-llama/Llama-3.2-1B-Instruct")
parser.add_argument("--pairs", required=True)
parser.add_argument("--out", required=True)
parser.add_argument("--beta", type=float, default=0.1)
parser.add_argument("--lr", type=float, default=5e-7)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--max-length", type=int, default=768)
parser.add_argument("--seed", type=int, default=19)
cli = parser.parse_args()

random.seed(cli.seed)
torch.manual_seed(cli.seed)
device = torch.device("cuda:0")

tokenizer = AutoTokenizer.from_pretrained(cli.base)
PAD = tokenizer.convert_tokens_to_ids("<|finetune_right_pad_id|>")
policy = AutoModelForCausalLM.from_pretrained(cli.base, torch_dtype=torch.bfloat16).to(device)
reference = copy.deepcopy(policy).eval()
reference.requires_grad_(False)
policy.config.use_cache = False
for module in policy.modules():
    if isinstance(module, torch.nn.Dropout):
        module.p = 0.0


def encode(prompt, answer):
    head = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True)
    p = tokenizer(head, add_special_tokens=False)["input_ids"]
    a = tokenizer(answer + "<|eot_id|>", add_special_tokens=False)["input_ids"]
    return (p + a)[: cli.max_length], ([0] * len(p) + [1] * len(a))[: cli.max_length]


def collate(rows):
    # chosen answers first, then the rejected ones
    items = [encode(r["prompt"], r["chosen"]) for r in rows] + [encode(r["prompt"], r["rejected"]) for r in rows]
    n = max(len(ids) for ids, _ in items)
    ids = torch.tensor([i + [PAD] * (n - len(i)) for i, _ in items])
    att = torch.tensor([[1] * len(i) + [0] * (n - len(i)) for i, _ in items])
    answer = torch.tensor([m + [0] * (n - len(m)) for _, m in items])
    return ids.to(device), att.to(device), answer.to(device)


def sequence_logps(model, ids, att, answer):
    logits = model(input_ids=ids, attention_mask=att).logits[:, :-1].float()
    logps = torch.log_softmax(logits, dim=-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    return (logps * answer[:, 1:]).sum(-1)


with open(cli.pairs, encoding="utf-8") as f:
    rows = [json.loads(line) for line in f]
optimizer = torch.optim.AdamW(policy.parameters(), lr=cli.lr, betas=(0.9, 0.95), weight_decay=0.0)
steps = cli.epochs * (len(rows) // cli.batch)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 10))

policy.train()
step, start = 0, time.time()
for epoch in range(cli.epochs):
    random.shuffle(rows)
    for i in range(0, len(rows) - cli.batch + 1, cli.batch):
        ids, att, answer = collate(rows[i : i + cli.batch])
        with torch.no_grad():
            ref_chosen, ref_rejected = sequence_logps(reference, ids, att, answer).chunk(2)
        chosen, rejected = sequence_logps(policy, ids, att, answer).chunk(2)
        margin = cli.beta * ((chosen - ref_chosen) - (rejected - ref_rejected))
        loss = -F.logsigmoid(margin).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), 10.0)
        optimizer.step()
        scheduler.step()
        step += 1
        if step % 5 == 0:
            print(
                f"step {step}/{steps} loss {loss.item():.4f} margin {margin.mean().item():.4f} "
                f"acc {(margin > 0).float().mean().item():.2f} grad_norm {norm.item():.2f} "
                f"lr {scheduler.get_last_lr()[0]:.1e} {time.time() - start:.0f}s",
                flush=True,
            )

policy.config.use_cache = True
policy.save_pretrained(cli.out)
tokenizer.save_pretrained(cli.out)
