"""Full fine-tune of Qwen2.5-0.5B on support mails, plain PyTorch. Single 16 GB card."""
import json
import math
import random
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
MAX_LEN = 1024
BATCH = 2
ACCUM = 8
EPOCHS = 3
LR = 1e-5
DEVICE = "cuda"


class Mails(Dataset):
    def __init__(self, path, tokenizer):
        self.tokenizer = tokenizer
        self.rows = [json.loads(x) for x in Path(path).read_text("utf-8").splitlines()]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        chat = [
            {"role": "user", "content": f"{row['subject']}\n\n{row['body']}"},
            {"role": "assistant", "content": row["reply"]},
        ]
        prompt = self.tokenizer.apply_chat_template(
            chat[:1], add_generation_prompt=True, tokenize=True, return_dict=False
        )
        ids = self.tokenizer.apply_chat_template(chat, tokenize=True, return_dict=False)[:MAX_LEN]
        labels = ([-100] * len(prompt) + ids[len(prompt):])[:MAX_LEN]
        return ids, labels


def collate(pad):
    def fn(batch):
        longest = max(len(ids) for ids, _ in batch)
        input_ids = torch.full((len(batch), longest), pad)
        labels = torch.full((len(batch), longest), -100)
        mask = torch.zeros((len(batch), longest), dtype=torch.long)
        for i, (ids, labs) in enumerate(batch):
            input_ids[i, : len(ids)] = torch.tensor(ids)
            labels[i, : len(labs)] = torch.tensor(labs)
            mask[i, : len(ids)] = 1
        return {"input_ids": input_ids, "attention_mask": mask, "labels": labels}

    return fn


def validate(model, loader):
    model.eval()
    total, batches = 0, 0
    for batch in loader:
        batch = {k: v.to(DEVICE) for k, v in batch.items()}
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = model(**batch)
        total += out.loss
        batches += 1
    model.train()
    return (total / max(batches, 1)).item()


def main():
    random.seed(0)
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    train = DataLoader(
        Mails("data/mails_train.jsonl", tokenizer),
        batch_size=BATCH,
        shuffle=True,
        collate_fn=collate(tokenizer.pad_token_id),
        num_workers=2,
    )
    val = DataLoader(
        Mails("data/mails_val.jsonl", tokenizer),
        batch_size=BATCH,
        collate_fn=collate(tokenizer.pad_token_id),
    )
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).to(DEVICE)
    model.gradient_checkpointing_enable()
    model.config.use_cache = False
    model.train()

    steps = math.ceil(len(train) / ACCUM) * EPOCHS
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01)
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.05 * steps), steps)

    step = 0
    for epoch in range(EPOCHS):
        running, start = 0.0, time.time()
        for i, batch in enumerate(train):
            batch = {k: v.to(DEVICE) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss / ACCUM
            loss.backward()
            running += loss.item()
            if (i + 1) % ACCUM == 0 or i + 1 == len(train):
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad(set_to_none=True)
                step += 1
                if step % 20 == 0:
                    mem = torch.cuda.max_memory_allocated() / 2**30
                    print(f"epoch {epoch} step {step}/{steps} loss {running / 20:.4f} "
                          f"mem {mem:.1f}G {time.time() - start:.0f}s", flush=True)
                    running = 0.0
        print(f"epoch {epoch} done, validating on {len(val.dataset)} mails", flush=True)
        val_loss = validate(model, val)
        print(f"epoch {epoch} val loss {val_loss:.4f}", flush=True)
        model.save_pretrained(f"ckpt/epoch{epoch}")
        tokenizer.save_pretrained(f"ckpt/epoch{epoch}")


if __name__ == "__main__":
    main()
