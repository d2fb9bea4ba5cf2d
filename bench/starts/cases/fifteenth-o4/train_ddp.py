import argparse
import json

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup
from peft import LoraConfig, get_peft_model

MODEL = "Qwen/Qwen3-14B"


class Rows(Dataset):
    def __init__(self, path, tok, max_len=2048):
        self.items = []
        for line in open(path):
            m = json.loads(line)["messages"]
            prompt = tok.apply_chat_template(m[:-1], add_generation_prompt=True, enable_thinking=False, return_dict=False)
            answer = tok(m[-1]["content"] + "<|im_end|>\n", add_special_tokens=False).input_ids
            self.items.append(((prompt + answer)[:max_len], ([-100] * len(prompt) + answer)[:max_len]))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch, pad):
    n = max(len(x) for x, _ in batch)
    ids = torch.full((len(batch), n), pad)
    lab = torch.full((len(batch), n), -100)
    att = torch.zeros((len(batch), n), dtype=torch.long)
    for i, (x, y) in enumerate(batch):
        ids[i, : len(x)] = torch.tensor(x)
        lab[i, : len(y)] = torch.tensor(y)
        att[i, : len(x)] = 1
    return {"input_ids": ids, "labels": lab, "attention_mask": att}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data")
    ap.add_argument("--out")
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--lr", type=float, default=1e-4)
    a = ap.parse_args()

    dist.init_process_group("nccl")
    rank = dist.get_rank()
    device = torch.device("cuda")

    tok = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16, attn_implementation="sdpa")
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    model = model.to(device)
    model = DDP(model)

    data = Rows(a.data, tok)
    sampler = DistributedSampler(data, shuffle=True, seed=1)
    loader = DataLoader(data, batch_size=2, sampler=sampler, collate_fn=lambda b: collate(b, tok.pad_token_id))
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=a.lr)
    total = len(loader) * a.epochs
    sched = get_cosine_schedule_with_warmup(opt, int(total * 0.03), total)

    model.train()
    step = 0
    for epoch in range(a.epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            batch = {k: v.to(device) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            if rank == 0 and step % 10 == 0:
                print(f"step {step}/{total} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        model.module.save_pretrained(a.out)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
