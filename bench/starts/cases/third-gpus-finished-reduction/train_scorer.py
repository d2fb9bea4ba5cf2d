"""Answer scorer on top of Qwen2.5-1.5B: LM loss plus an optional length head. torchrun --nproc_per_node 2 train_scorer.py"""

import json
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"
EPOCHS = 2


class Scorer(nn.Module):
    def __init__(self, name, with_length=False):
        super().__init__()
        self.lm = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)
        self.length_head = nn.Linear(self.lm.config.hidden_size, 1, dtype=torch.bfloat16)
        self.with_length = with_length

    def forward(self, input_ids, attention_mask, labels, lengths=None):
        out = self.lm(
            input_ids=input_ids,
            attention_mask=attention_mask,
            labels=labels,
            output_hidden_states=self.with_length,
        )
        loss = out.loss
        if self.with_length:
            last = out.hidden_states[-1][:, -1]
            loss = loss + 0.1 * (self.length_head(last).squeeze(-1) - lengths).pow(2).mean()
        return loss


def collate(rows):
    texts = [tok.apply_chat_template(r["messages"], tokenize=False) for r in rows]
    enc = tok(
        texts,
        padding=True,
        truncation=True,
        max_length=1024,
        return_tensors="pt",
        add_special_tokens=False,
    )
    enc["labels"] = enc["input_ids"].masked_fill(enc["attention_mask"] == 0, -100)
    return enc


dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(1234)
tok = AutoTokenizer.from_pretrained(MODEL)
rows = [json.loads(line) for line in open("scored_chats.jsonl")]
sampler = DistributedSampler(rows, shuffle=True, seed=1234)
loader = DataLoader(rows, batch_size=4, sampler=sampler, collate_fn=collate, drop_last=True)
model = Scorer(MODEL).cuda(rank)
model = DDP(model, device_ids=[rank])
opt = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01)
sched = get_cosine_schedule_with_warmup(opt, 50, EPOCHS * len(loader))

step = 0
for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    for batch in loader:
        batch = {k: v.cuda(rank) for k, v in batch.items()}
        loss = model(**batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad(set_to_none=True)
        if rank == 0 and step % 10 == 0:
            print(
                f"epoch {epoch} step {step} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.2e}",
                flush=True,
            )
        step += 1
if rank == 0:
    model.module.lm.save_pretrained("out/scorer")
    tok.save_pretrained("out/scorer")
dist.destroy_process_group()
