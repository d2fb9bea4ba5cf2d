import math
import random
import time

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from data import load_dialogues  # list of [{"role":..,"content":..}, ...]

name = "HuggingFaceTB/SmolLM2-1.7B-Instruct"
ckpt_path = "ckpt/smol_ft.pt"
device = "cuda"
max_len = 1024
bs, accum, epochs, lr = 8, 4, 3, 2e-5

random.seed(0)
torch.manual_seed(0)
torch.set_float32_matmul_precision("high")

tok = AutoTokenizer.from_pretrained(name)


class Chats(Dataset):
    def __init__(self, chats):
        self.items = []
        for c in chats:
            prompt = tok.apply_chat_template(c[:-1], add_generation_prompt=True, tokenize=True, return_dict=False)
            answer = tok(c[-1]["content"] + "<|im_end|>", add_special_tokens=False).input_ids
            if len(prompt) + len(answer) > max_len:
                continue
            self.items.append((prompt + answer, [-100] * len(prompt) + answer))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    n = max(len(x) for x, _ in batch)
    ids = torch.full((len(batch), n), tok.pad_token_id)
    labels = torch.full((len(batch), n), -100)
    mask = torch.zeros(len(batch), n, dtype=torch.long)
    for i, (x, y) in enumerate(batch):
        ids[i, : len(x)] = torch.tensor(x)
        labels[i, : len(y)] = torch.tensor(y)
        mask[i, : len(x)] = 1
    return ids, mask, labels


chats = load_dialogues("dialogues.jsonl")
dl = DataLoader(Chats(chats), batch_size=bs, shuffle=True, collate_fn=collate, drop_last=True)

model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.float32).to(device)
model.gradient_checkpointing_enable()
model.config.use_cache = False
model = torch.compile(model)

opt = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.0)
total = math.ceil(len(dl) / accum) * epochs
sched = get_cosine_schedule_with_warmup(opt, int(0.03 * total), total)

model.train()
step, running, t0 = 0, 0.0, time.time()
for epoch in range(epochs):
    for i, (ids, mask, labels) in enumerate(dl):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=ids.to(device), attention_mask=mask.to(device), labels=labels.to(device)).loss
        (loss / accum).backward()
        running += loss.item() / accum
        if (i + 1) % accum == 0 or i + 1 == len(dl):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            if step % 20 == 0:
                print(f"epoch {epoch} step {step}/{total} loss {running / 20:.4f} lr {sched.get_last_lr()[0]:.2e} {time.time() - t0:.0f}s", flush=True)
                running = 0.0
    torch.save(model.state_dict(), ckpt_path)
    print("saved", ckpt_path)
