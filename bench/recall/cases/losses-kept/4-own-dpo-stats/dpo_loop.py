import argparse
from collections import defaultdict

import torch
import torch.nn.functional as F
from datasets import load_from_disk
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer


def pad(rows, key, value):
    n = max(len(r[key]) for r in rows)
    return torch.tensor([r[key] + [value] * (n - len(r[key])) for r in rows])


def make_collate(pad_id):
    def collate(rows):
        out = {}
        for side in ("chosen", "rejected"):
            out[side] = {
                "input_ids": pad(rows, f"{side}_ids", pad_id),
                "attention_mask": pad(rows, f"{side}_mask", 0),
                "labels": pad(rows, f"{side}_labels", -100),
            }
        return out

    return collate


def logps(model, part):
    logits = model(input_ids=part["input_ids"], attention_mask=part["attention_mask"]).logits[:, :-1].float()
    target = part["labels"][:, 1:]
    token = -F.cross_entropy(logits.transpose(1, 2), target, ignore_index=-100, reduction="none")
    return token.sum(1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="out/sft-merged")
    ap.add_argument("--pairs", default="data/pairs_tokenized")
    ap.add_argument("--beta", type=float, default=0.1)
    ap.add_argument("--out", default="out/dpo")
    a = ap.parse_args()

    tok = AutoTokenizer.from_pretrained(a.model)
    model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.bfloat16)
    lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(model, lora).cuda()
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-6, weight_decay=0.0)
    loader = DataLoader(load_from_disk(a.pairs), batch_size=4, shuffle=True, collate_fn=make_collate(tok.pad_token_id))

    stats = defaultdict(list)
    model.train()
    for i, batch in enumerate(loader):
        batch = {s: {k: v.cuda() for k, v in p.items()} for s, p in batch.items()}
        reward = {}
        for side, part in batch.items():
            with torch.no_grad(), model.disable_adapter():
                ref = logps(model, part)
            reward[side] = a.beta * (logps(model, part) - ref)
        margin = reward["chosen"] - reward["rejected"]
        loss = -F.logsigmoid(margin).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)

        stats["loss"].append(loss)
        stats["margin"].append(margin.mean())
        if i % 25 == 0:
            print(i, {k: round(torch.stack(v).mean().item(), 4) for k, v in stats.items()})
    model.save_pretrained(a.out)
    tok.save_pretrained(a.out)


if __name__ == "__main__":
    main()
