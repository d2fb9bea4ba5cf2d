import math
import os

import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup
from datasets import load_dataset

torch.manual_seed(1234)
torch.set_float32_matmul_precision("high")

NAME = "Qwen/Qwen2.5-0.5B"
OUT = "ckpt"
EPOCHS = 3
BS = 16
ACCUM = 2
LR = 2e-5
MAXLEN = 768

os.makedirs(OUT, exist_ok=True)
tok = AutoTokenizer.from_pretrained(NAME)
model = AutoModelForCausalLM.from_pretrained(NAME, torch_dtype=torch.float32).cuda()
model.config.use_cache = False
model = torch.compile(model)


def encode(ex):
    prompt = f"### Question:\n{ex['question']}\n\n### Answer:\n"
    p = tok(prompt)["input_ids"]
    a = tok(ex["answer"])["input_ids"] + [tok.eos_token_id]
    ids = (p + a)[:MAXLEN]
    labels = ([-100] * len(p) + a)[:MAXLEN]
    return {"input_ids": ids, "labels": labels}


def collate(batch):
    n = max(len(b["input_ids"]) for b in batch)
    ids, att, lab = [], [], []
    for b in batch:
        k = n - len(b["input_ids"])
        ids.append(b["input_ids"] + [tok.pad_token_id] * k)
        att.append([1] * len(b["input_ids"]) + [0] * k)
        lab.append(b["labels"] + [-100] * k)
    return torch.tensor(ids), torch.tensor(att), torch.tensor(lab)


ds = load_dataset("json", data_files="data/med_qa_train.jsonl", split="train")
ds = ds.map(encode, remove_columns=ds.column_names)
dl = DataLoader(ds, batch_size=BS, shuffle=True, collate_fn=collate, num_workers=2, drop_last=True)

opt = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01, betas=(0.9, 0.95))
total = math.ceil(len(dl) / ACCUM) * EPOCHS
sched = get_cosine_schedule_with_warmup(opt, int(0.05 * total), total)

step = 0
run = 0.0
model.train()
for epoch in range(EPOCHS):
    for i, (ids, att, lab) in enumerate(dl):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=ids.cuda(), attention_mask=att.cuda(), labels=lab.cuda()).loss
        (loss / ACCUM).backward()
        run += loss.item() / ACCUM
        if (i + 1) % ACCUM == 0 or i + 1 == len(dl):
            gn = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            if step % 20 == 0:
                print(f"epoch {epoch} step {step}/{total} loss {run / 20:.4f} gnorm {gn.item():.3f} lr {sched.get_last_lr()[0]:.3e}", flush=True)
                run = 0.0
    torch.save(model.state_dict(), f"{OUT}/epoch{epoch}.pt")

torch.save(model.state_dict(), f"{OUT}/final.pt")
tok.save_pretrained(OUT)
print("done")
