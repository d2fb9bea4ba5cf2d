import json
import math
import time

import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

NAME = "HuggingFaceTB/SmolLM2-360M-Instruct"
EPOCHS, BS, LR, MAXLEN = 3, 16, 3e-5, 512

tok = AutoTokenizer.from_pretrained(NAME)
model = AutoModelForCausalLM.from_pretrained(NAME, torch_dtype=torch.float32).cuda()
model.config.use_cache = False
model = torch.compile(model)


def encode(row):
    full = tok.apply_chat_template(row["messages"], tokenize=False)
    prompt = tok.apply_chat_template(row["messages"][:-1], tokenize=False, add_generation_prompt=True)
    ids = tok(full, add_special_tokens=False)["input_ids"][:MAXLEN]
    n = len(tok(prompt, add_special_tokens=False)["input_ids"])
    return ids, [-100] * n + ids[n:]


def collate(batch):
    m = max(len(i) for i, _ in batch)
    ids = torch.tensor([i + [tok.pad_token_id] * (m - len(i)) for i, _ in batch])
    labels = torch.tensor([l + [-100] * (m - len(l)) for _, l in batch])
    mask = torch.tensor([[1] * len(i) + [0] * (m - len(i)) for i, _ in batch])
    return {"input_ids": ids, "labels": labels, "attention_mask": mask}


rows = [encode(json.loads(l)) for l in open("support.jsonl", encoding="utf-8")]
dl = DataLoader(rows, batch_size=BS, shuffle=True, collate_fn=collate, drop_last=True)
opt = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01)
total = EPOCHS * len(dl)
sched = get_cosine_schedule_with_warmup(opt, math.ceil(0.05 * total), total)

step, t0 = 0, time.time()
model.train()
for epoch in range(EPOCHS):
    for batch in dl:
        batch = {k: v.cuda() for k, v in batch.items()}
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad(set_to_none=True)
        step += 1
        if step % 5 == 0:
            print(f"epoch {epoch} step {step}/{total} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.2e} {time.time()-t0:.0f}s", flush=True)
    torch.save(model.state_dict(), f"ckpt/epoch{epoch}.pt")
tok.save_pretrained("ckpt")
