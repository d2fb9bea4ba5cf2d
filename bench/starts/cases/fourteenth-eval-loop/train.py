import json
import math
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
BS, ACCUM, EPOCHS, LR, MAXLEN = 4, 4, 2, 1e-4, 2560
EVAL_EVERY = 200

acc = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=ACCUM)
set_seed(11)
tok = AutoTokenizer.from_pretrained(MODEL)
PAD = tok.convert_tokens_to_ids("<|finetune_right_pad_id|>")


class Chats(Dataset):
    def __init__(self, path):
        self.rows = [json.loads(l) for l in open(path)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        msgs = self.rows[i]["messages"]
        full = tok.apply_chat_template(msgs, tokenize=True, return_dict=False)
        head = tok.apply_chat_template(msgs[:-1], tokenize=True, add_generation_prompt=True, return_dict=False)
        labels = [-100] * len(head) + full[len(head):]
        return full[:MAXLEN], labels[:MAXLEN]


def collate(batch):
    n = max(len(x) for x, _ in batch)
    ids = torch.full((len(batch), n), PAD)
    lab = torch.full((len(batch), n), -100)
    att = torch.zeros((len(batch), n), dtype=torch.long)
    for k, (x, y) in enumerate(batch):
        ids[k, : len(x)] = torch.tensor(x)
        lab[k, : len(y)] = torch.tensor(y)
        att[k, : len(x)] = 1
    return {"input_ids": ids, "labels": lab, "attention_mask": att}


model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16, attn_implementation="sdpa")
model.config.use_cache = False
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model = get_peft_model(model, LoraConfig(r=32, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM"))

train_dl = DataLoader(Chats("train.jsonl"), batch_size=BS, shuffle=True, collate_fn=collate, num_workers=4)
val_dl = DataLoader(Chats("val.jsonl"), batch_size=BS, collate_fn=collate, num_workers=2)
opt = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=LR, weight_decay=0.0)
total = math.ceil(len(train_dl) / ACCUM) * EPOCHS
sched = get_cosine_schedule_with_warmup(opt, int(0.03 * total), total)
model, opt, train_dl, val_dl = acc.prepare(model, opt, train_dl, val_dl)


def validate():
    model.eval()
    s, n = 0.0, 0
    for batch in val_dl:
        out = model(**batch)
        k = (batch["labels"][:, 1:] != -100).sum().item()
        s += out.loss.item() * k
        n += k
    model.train()
    return s / n


step, t0 = 0, time.time()
for epoch in range(EPOCHS):
    model.train()
    for batch in train_dl:
        with acc.accumulate(model):
            loss = model(**batch).loss
            acc.backward(loss)
            if acc.sync_gradients:
                acc.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            if acc.sync_gradients:
                sched.step()
            opt.zero_grad()
        if acc.sync_gradients:
            step += 1
            if step % 10 == 0:
                acc.print(
                    f"step {step}/{total} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.2e} "
                    f"peak {torch.cuda.max_memory_allocated() / 2**30:.1f}GiB {time.time() - t0:.0f}s"
                )
            if step % EVAL_EVERY == 0:
                acc.print(f"step {step} val {validate():.4f}")

acc.unwrap_model(model).save_pretrained("adapter")
tok.save_pretrained("adapter")
