"""LoRA on Llama-3.2-3B-Instruct: answers of the grants office. Plain PyTorch, one L40S."""
import json
import math
import random
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup

BASE = "meta-llama/Llama-3.2-3B-Instruct"
OUT = Path("runs/grants-lora")
EPOCHS, BATCH, ACCUM, LR, MAX_LEN = 3, 4, 4, 2e-4, 1024
EVAL_EVERY = 20
random.seed(1)
torch.manual_seed(1)

tokenizer = AutoTokenizer.from_pretrained(BASE)
tokenizer.pad_token = "<|finetune_right_pad_id|>"

model = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.bfloat16).cuda()
model = get_peft_model(
    model,
    LoraConfig(
        r=32,
        lora_alpha=64,
        lora_dropout=0.1,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        task_type="CAUSAL_LM",
    ),
)
for p in model.parameters():
    if p.requires_grad:
        p.data = p.data.float()
model.print_trainable_parameters()


def load(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line)["messages"] for line in f]


def encode(messages):
    prompt = tokenizer.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True)
    p = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    a = tokenizer(messages[-1]["content"] + "<|eot_id|>", add_special_tokens=False)["input_ids"]
    return (p + a)[:MAX_LEN], ([-100] * len(p) + a)[:MAX_LEN]


def collate(batch):
    rows = [encode(m) for m in batch]
    n = max(len(ids) for ids, _ in rows)
    pad = tokenizer.pad_token_id
    return {
        "input_ids": torch.tensor([ids + [pad] * (n - len(ids)) for ids, _ in rows]),
        "attention_mask": torch.tensor([[1] * len(ids) + [0] * (n - len(ids)) for ids, _ in rows]),
        "labels": torch.tensor([lab + [-100] * (n - len(lab)) for _, lab in rows]),
    }


train = DataLoader(load("data/train.jsonl"), batch_size=BATCH, shuffle=True, collate_fn=collate, drop_last=True)
val = DataLoader(load("data/val.jsonl"), batch_size=8, shuffle=False, collate_fn=collate)

params = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(params, lr=LR, weight_decay=0.0)
total = EPOCHS * len(train) // ACCUM
scheduler = get_linear_schedule_with_warmup(optimizer, max(1, total // 20), total)


@torch.no_grad()
def evaluate():
    nll, tokens = 0.0, 0
    for batch in val:
        batch = {k: v.cuda() for k, v in batch.items()}
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = model(**batch)
        n = (batch["labels"][:, 1:] != -100).sum().item()
        nll += out.loss.item() * n
        tokens += n
    return nll / tokens


model.train()
step, running = 0, 0.0
for epoch in range(EPOCHS):
    for i, batch in enumerate(train):
        batch = {k: v.cuda() for k, v in batch.items()}
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(**batch).loss / ACCUM
        loss.backward()
        running += loss.item()
        if (i + 1) % ACCUM:
            continue
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if step % 5 == 0:
            print(f"step {step:4d}/{total} epoch {epoch} train_loss {running / 5:.4f} lr {scheduler.get_last_lr()[0]:.2e}")
            running = 0.0
        if step % EVAL_EVERY == 0:
            v = evaluate()
            print(f"step {step:4d} val_loss {v:.4f} val_ppl {math.exp(v):.2f}")

model.save_pretrained(OUT)
tokenizer.save_pretrained(OUT)
# twice, to be sure: these should be the same number
for k in range(3):
    v = evaluate()
    print(f"final val_loss ({k + 1}) {v:.4f} val_ppl {math.exp(v):.2f}")
