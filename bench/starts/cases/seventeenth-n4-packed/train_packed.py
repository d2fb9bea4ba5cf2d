import json
import math
import os

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_scheduler

from packing import PackedDataset, document_mask

BASE = "meta-llama/Llama-3.2-1B-Instruct"
SEQ_LEN = 4096
BS, ACC = 4, 4
EPOCHS = 3
PEAK_LR = 2e-5
OUT = "out/llama1b-med-notes"

set_seed(1234)
accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=ACC)

tokenizer = AutoTokenizer.from_pretrained(BASE)
PAD = tokenizer.convert_tokens_to_ids("<|finetune_right_pad_id|>")


def encode(row):
    msgs = row["messages"]
    prompt = tokenizer.apply_chat_template(msgs[:-1], add_generation_prompt=True, tokenize=False)
    text = tokenizer.apply_chat_template(msgs, tokenize=False)
    p = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    x = tokenizer(text, add_special_tokens=False)["input_ids"]
    return x, [-100] * len(p) + x[len(p) :]


with open("data/notes_train.jsonl") as f:
    examples = [encode(json.loads(line)) for line in f]
examples = [e for e in examples if len(e[0]) <= SEQ_LEN]
ds = PackedDataset(examples, SEQ_LEN, PAD)
accelerator.print(f"{len(examples)} chats -> {len(ds)} packs of {SEQ_LEN}")

model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32, attn_implementation="sdpa")
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model.config.use_cache = False

loader = DataLoader(ds, batch_size=BS, shuffle=True, drop_last=True, num_workers=2)
optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_LR, betas=(0.9, 0.95), weight_decay=0.0)
total = EPOCHS * math.ceil(len(loader) / ACC)
scheduler = get_scheduler("cosine", optimizer, num_warmup_steps=10, num_training_steps=total)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

model.train()
step, seen = 0, []
for epoch in range(EPOCHS):
    for batch in loader:
        with accelerator.accumulate(model):
            seg = batch.pop("segment_ids")
            attn = document_mask(seg, torch.bfloat16)
            out = model(attention_mask=attn, **batch)
            accelerator.backward(out.loss)
            seen.append(out.loss.detach().float().item())
            if accelerator.sync_gradients:
                norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
                step += 1
            optimizer.step()
            if accelerator.sync_gradients:
                scheduler.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients and step % 5 == 0:
            accelerator.print(
                json.dumps(
                    {
                        "step": step,
                        "epoch": epoch,
                        "loss": round(sum(seen) / len(seen), 5),
                        "grad_norm": round(float(norm), 4),
                        "lr": scheduler.get_last_lr()[0],
                    }
                )
            )
            seen = []

accelerator.wait_for_everyone()
os.makedirs(OUT, exist_ok=True)
accelerator.unwrap_model(model).save_pretrained(OUT, safe_serialization=True)
tokenizer.save_pretrained(OUT)
