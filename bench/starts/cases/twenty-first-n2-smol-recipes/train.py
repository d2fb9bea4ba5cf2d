import json
import math
import random

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

BASE = "HuggingFaceTB/SmolLM2-360M-Instruct"
EPOCHS, BS, LR = 4, 8, 5e-5
random.seed(0)
torch.manual_seed(0)
torch.set_float32_matmul_precision("high")

tok = AutoTokenizer.from_pretrained(BASE)


def encode(row):
    m = row["messages"]
    prompt = tok.apply_chat_template(m[:-1], add_generation_prompt=True, tokenize=True, return_dict=False)
    full = tok.apply_chat_template(m, tokenize=True, return_dict=False)
    return {"ids": full, "labels": [-100] * len(prompt) + full[len(prompt):]}


def collate(batch):
    ids = pad_sequence([torch.tensor(b["ids"]) for b in batch], batch_first=True, padding_value=tok.pad_token_id)
    lab = pad_sequence([torch.tensor(b["labels"]) for b in batch], batch_first=True, padding_value=-100)
    att = pad_sequence([torch.ones(len(b["ids"]), dtype=torch.long) for b in batch], batch_first=True)
    return ids.cuda(), att.cuda(), lab.cuda()


rows = [encode(json.loads(x)) for x in open("recipes.jsonl")]
random.shuffle(rows)
val, train = rows[:40], rows[40:]
dl = DataLoader(train, BS, shuffle=True, collate_fn=collate, drop_last=True)
vl = DataLoader(val, BS, collate_fn=collate)

model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32).cuda()
model = torch.compile(model, dynamic=True)
opt = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01)
total = EPOCHS * len(dl)
sched = get_cosine_schedule_with_warmup(opt, int(0.05 * total), total)


@torch.no_grad()
def evaluate():
    model.eval()
    s = 0.0
    for ids, att, lab in vl:
        with torch.autocast("cuda", torch.bfloat16):
            s += model(input_ids=ids, attention_mask=att, labels=lab).loss.item()
    model.train()
    return s / len(vl)


step = 0
model.train()
for epoch in range(EPOCHS):
    for ids, att, lab in dl:
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(input_ids=ids, attention_mask=att, labels=lab).loss
        loss.backward()
        gn = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad(set_to_none=True)
        step += 1
        if step % 10 == 0:
            print(f"step {step}/{total} loss {loss.item():.4f} grad_norm {gn.item():.3f} lr {sched.get_last_lr()[0]:.2e}", flush=True)
    v = evaluate()
    print(f"epoch {epoch + 1} val_loss {v:.4f} ppl {math.exp(v):.3f}", flush=True)
    torch.save({"model": model.state_dict(), "epoch": epoch, "val_loss": v}, f"ckpt_epoch{epoch + 1}.pt")
print("done")
