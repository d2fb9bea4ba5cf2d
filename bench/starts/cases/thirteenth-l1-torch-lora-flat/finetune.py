import json
import math
import os
import random
import time

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"
DATA = "recipes.jsonl"
EPOCHS = 3
BS = 8
LR = 2e-4
MAXLEN = 768
DEVICE = "cuda"


class Chats(Dataset):
    def __init__(self, path, tok):
        self.items = []
        with open(path) as f:
            for line in f:
                msgs = json.loads(line)["messages"]
                prompt = tok.apply_chat_template(msgs[:-1], tokenize=False, add_generation_prompt=True)
                answer = msgs[-1]["content"] + "<|im_end|>\n"
                p = tok(prompt, add_special_tokens=False)["input_ids"]
                a = tok(answer, add_special_tokens=False)["input_ids"]
                ids = (p + a)[:MAXLEN]
                lab = ([-100] * len(p) + a)[:MAXLEN]
                self.items.append((ids, lab))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch, pad_id):
    n = max(len(i) for i, _ in batch)
    ids = torch.full((len(batch), n), pad_id)
    lab = torch.full((len(batch), n), -100)
    att = torch.zeros((len(batch), n), dtype=torch.long)
    for k, (i, l) in enumerate(batch):
        ids[k, : len(i)] = torch.tensor(i)
        lab[k, : len(l)] = torch.tensor(l)
        att[k, : len(i)] = 1
    return {"input_ids": ids, "labels": lab, "attention_mask": att}


def build(total_steps):
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16).to(DEVICE)
    decay, no_decay = [], []
    for n, p in model.named_parameters():
        (no_decay if p.ndim < 2 else decay).append(p)
    opt = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.01}, {"params": no_decay, "weight_decay": 0.0}], lr=LR, betas=(0.9, 0.99)
    )
    sched = get_cosine_schedule_with_warmup(opt, int(0.05 * total_steps), total_steps)
    lora = LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.0,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(model, lora)
    model.print_trainable_parameters()
    return model, opt, sched


def main():
    random.seed(0)
    torch.manual_seed(0)
    tok = AutoTokenizer.from_pretrained(MODEL)
    ds = Chats(DATA, tok)
    dl = DataLoader(ds, batch_size=BS, shuffle=True, drop_last=True, collate_fn=lambda b: collate(b, tok.pad_token_id))
    total = len(dl) * EPOCHS
    model, opt, sched = build(total)
    model.train()
    step, t0 = 0, time.time()
    for epoch in range(EPOCHS):
        for batch in dl:
            batch = {k: v.to(DEVICE) for k, v in batch.items()}
            loss = model(**batch).loss
            loss.backward()
            gn = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            if step % 3 == 0:
                lr = sched.get_last_lr()[0]
                print(f"epoch {epoch} step {step}/{total} loss {loss.item():.4f} lr {lr:.3e} grad_norm {gn:.3f} {time.time()-t0:.1f}s", flush=True)
    os.makedirs("out", exist_ok=True)
    model.save_pretrained("out/recipes-lora")
    tok.save_pretrained("out/recipes-lora")


if __name__ == "__main__":
    main()
