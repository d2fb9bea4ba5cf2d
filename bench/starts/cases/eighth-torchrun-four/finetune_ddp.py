"""DDP fine-tune (LoRA) of Qwen2.5-7B on minutes -> action items. Launched with torchrun (see run.sh)."""
import argparse
import json
import os

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup


def log(*what):
    if dist.get_rank() == 0:
        print(*what, flush=True)


class Minutes(Dataset):
    def __init__(self, path, tok, max_len):
        self.tok, self.max_len = tok, max_len
        with open(path, encoding="utf-8") as f:
            self.rows = [json.loads(line) for line in f]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        r = self.rows[i]
        chat = [
            {"role": "system", "content": "List the action items with owner and date."},
            {"role": "user", "content": r["minutes"]},
            {"role": "assistant", "content": r["actions"]},
        ]
        prompt = self.tok.apply_chat_template(
            chat[:-1], add_generation_prompt=True, tokenize=True, return_dict=False
        )
        ids = self.tok.apply_chat_template(chat, tokenize=True, return_dict=False)
        labels = [-100] * len(prompt) + ids[len(prompt):]
        return ids[: self.max_len], labels[: self.max_len]


def make_collate(pad_id):
    def collate(rows):
        n = max(len(a) for a, _ in rows)
        ids = torch.tensor([a + [pad_id] * (n - len(a)) for a, _ in rows])
        labels = torch.tensor([b + [-100] * (n - len(b)) for _, b in rows])
        mask = torch.tensor([[1] * len(a) + [0] * (n - len(a)) for a, _ in rows])
        return ids, mask, labels

    return collate


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="Qwen/Qwen2.5-7B-Instruct")
    ap.add_argument("--train", default="data/minutes.jsonl")
    ap.add_argument("--out", default="out/minutes-7b")
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--batch", type=int, default=1)
    ap.add_argument("--accum", type=int, default=8)
    ap.add_argument("--lr", type=float, default=1e-4)
    ap.add_argument("--max-len", type=int, default=2048)
    args = ap.parse_args()

    dist.init_process_group("nccl")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    world = dist.get_world_size()
    log(f"world size {world}")

    tok = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16)
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model = get_peft_model(
        model,
        LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear",
                   task_type="CAUSAL_LM"),
    )
    model.to(device)
    model = DDP(model)

    data = Minutes(args.train, tok, args.max_len)
    sampler = DistributedSampler(data, shuffle=True, seed=1)
    loader = DataLoader(data, batch_size=args.batch, sampler=sampler,
                        collate_fn=make_collate(tok.pad_token_id), num_workers=2, pin_memory=True)

    params = [p for p in model.parameters() if p.requires_grad]
    optim = torch.optim.AdamW(params, lr=args.lr, weight_decay=0.0)
    total = args.epochs * (len(loader) // args.accum)
    sched = get_linear_schedule_with_warmup(optim, int(0.03 * total), total)

    model.train()
    step = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for i, (ids, mask, labels) in enumerate(loader):
            ids, mask, labels = ids.to(device), mask.to(device), labels.to(device)
            loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
            (loss / args.accum).backward()
            if (i + 1) % args.accum == 0:
                torch.nn.utils.clip_grad_norm_(params, 1.0)
                optim.step()
                sched.step()
                optim.zero_grad(set_to_none=True)
                step += 1
                if step % 10 == 0:
                    log(f"epoch {epoch} step {step}/{total} loss {loss.item():.4f}")
    if dist.get_rank() == 0:
        model.module.save_pretrained(args.out)
        tok.save_pretrained(args.out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
