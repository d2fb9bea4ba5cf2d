"""Small loop for the triage model. One GPU, no Trainer."""
import csv
import json
import math
import pathlib
import random
import time

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup

BASE = "meta-llama/Llama-3.2-1B-Instruct"
EPOCHS = 3
MICRO = 2
ACCUM = 16
LR = 2e-4
MAX_LEN = 1024
DEVICE = "cuda"


def read(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def encode(row, tok):
    chat = [{"role": "user", "content": row["message"]}]
    prompt = tok.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    answer = tok(row["answer"] + "<|eot_id|>", add_special_tokens=False)["input_ids"]
    ids = (prompt + answer)[:MAX_LEN]
    labels = ([-100] * len(prompt) + answer)[:MAX_LEN]
    return {"ids": ids, "labels": labels}


def collate(batch, pad):
    width = max(len(b["ids"]) for b in batch)
    return {
        "input_ids": torch.tensor([b["ids"] + [pad] * (width - len(b["ids"])) for b in batch]),
        "attention_mask": torch.tensor([[1] * len(b["ids"]) + [0] * (width - len(b["ids"])) for b in batch]),
        "labels": torch.tensor([b["labels"] + [-100] * (width - len(b["labels"])) for b in batch]),
    }


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    total = count = 0
    for batch in loader:
        batch = {k: v.to(DEVICE) for k, v in batch.items()}
        total += model(**batch).loss.item()
        count += 1
    model.train()
    return total / count


def main():
    random.seed(5)
    torch.manual_seed(5)
    tok = AutoTokenizer.from_pretrained(BASE)
    pad = tok.convert_tokens_to_ids("<|finetune_right_pad_id|>")
    rows = [encode(r, tok) for r in read("triage.jsonl")]
    random.shuffle(rows)
    held, rows = rows[:40], rows[40:]
    fn = lambda b: collate(b, pad)
    train = DataLoader(rows, batch_size=MICRO, shuffle=True, collate_fn=fn)
    dev = DataLoader(held, batch_size=4, collate_fn=fn)

    model = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.bfloat16).to(DEVICE)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear",
                                             task_type="CAUSAL_LM"))
    model.print_trainable_parameters()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LR, weight_decay=0.0)
    updates = EPOCHS * math.ceil(len(train) / ACCUM)
    scheduler = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=int(0.05 * updates), num_training_steps=updates)
    print(len(rows), "rows,", len(train), "batches per epoch,", updates, "updates")

    log = csv.writer(open("metrics.csv", "w"))
    log.writerow(["update", "epoch", "loss", "dev_loss", "lr", "seconds"])
    update, running, began = 0, 0.0, time.time()
    model.train()
    for epoch in range(EPOCHS):
        for i, batch in enumerate(train):
            batch = {k: v.to(DEVICE) for k, v in batch.items()}
            loss = model(**batch).loss / ACCUM
            loss.backward()
            running += loss.item()
            if (i + 1) % ACCUM == 0 or i + 1 == len(train):
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                update += 1
                dev_loss = evaluate(model, dev) if update % 10 == 0 else None
                log.writerow([update, epoch, round(running, 4), dev_loss and round(dev_loss, 4),
                              scheduler.get_last_lr()[0], round(time.time() - began, 1)])
                running = 0.0
            scheduler.step()
    model.save_pretrained("triage-lora")
    tok.save_pretrained("triage-lora")


if __name__ == "__main__":
    main()
