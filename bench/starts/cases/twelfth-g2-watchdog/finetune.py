import json
import math
import random

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

MODEL = "mistralai/Mistral-7B-Instruct-v0.3"
TRAIN = "data/contracts_train.jsonl"
VAL = "data/contracts_val.jsonl"
OUT = "out/contracts-mistral"
MAX_LEN = 1536
BATCH = 4
EPOCHS = 4
LR = 1e-4
EVAL_EVERY = 200
PATIENCE = 3


class Chats(Dataset):
    def __init__(self, path, tok):
        self.rows = []
        for line in open(path):
            r = json.loads(line)
            user = [{"role": "user", "content": r["instruction"]}]
            prompt = tok.apply_chat_template(user, add_generation_prompt=True, tokenize=False)
            p = tok(prompt, add_special_tokens=False)["input_ids"]
            a = tok(" " + r["response"].strip() + tok.eos_token, add_special_tokens=False)["input_ids"]
            if len(p) + len(a) > MAX_LEN:
                continue
            self.rows.append({"input_ids": p + a, "labels": [-100] * len(p) + a})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(batch, pad_id):
    n = max(len(r["input_ids"]) for r in batch)
    ids = torch.full((len(batch), n), pad_id)
    labels = torch.full((len(batch), n), -100)
    mask = torch.zeros((len(batch), n), dtype=torch.long)
    for i, r in enumerate(batch):
        k = len(r["input_ids"])
        ids[i, :k] = torch.tensor(r["input_ids"])
        labels[i, :k] = torch.tensor(r["labels"])
        mask[i, :k] = 1
    return {"input_ids": ids, "labels": labels, "attention_mask": mask}


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    nll, count = 0.0, 0
    for batch in loader:
        out = model(**batch)
        n = (batch["labels"][:, 1:] != -100).sum().item()
        nll += out.loss.item() * n
        count += n
    model.train()
    return nll / count


def main():
    set_seed(17)
    accelerator = Accelerator()
    rank = accelerator.process_index

    tok = AutoTokenizer.from_pretrained(MODEL)
    if tok.pad_token is None:
        tok.pad_token = tok.unk_token
    train_ds, val_ds = Chats(TRAIN, tok), Chats(VAL, tok)
    accelerator.print(f"train {len(train_ds)} rows, val {len(val_ds)} rows, {accelerator.num_processes} processes")

    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16)
    model.config.use_cache = False
    model = get_peft_model(
        model,
        LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, task_type="CAUSAL_LM",
                   target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]),
    )
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LR, weight_decay=0.0)

    def fn(batch):
        return collate(batch, tok.pad_token_id)

    train_loader = DataLoader(train_ds, batch_size=BATCH, shuffle=True, collate_fn=fn, drop_last=True)
    val_loader = DataLoader(val_ds, batch_size=BATCH, collate_fn=fn)
    model, optimizer, train_loader, val_loader = accelerator.prepare(model, optimizer, train_loader, val_loader)

    total = len(train_loader) * EPOCHS
    # not prepared: one step here is one optimizer step
    scheduler = get_cosine_schedule_with_warmup(optimizer.optimizer, int(0.03 * total), total)
    accelerator.print(f"{total} optimizer steps")

    step, best, bad, stop = 0, math.inf, 0, False
    for epoch in range(EPOCHS):
        for batch in train_loader:
            loss = model(**batch).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1

            if step % 50 == 0:
                accelerator.print(f"epoch {epoch} step {step}/{total} loss {loss.item():.4f} lr {scheduler.get_last_lr()[0]:.2e}")

            if step % EVAL_EVERY == 0:
                val = evaluate(model, val_loader)
                if val < best - 1e-3:
                    best, bad = val, 0
                else:
                    bad += 1
                print(f"[rank {rank}] step {step} val {val:.4f} best {best:.4f} bad {bad}", flush=True)
                if bad >= PATIENCE:
                    print(f"[rank {rank}] no improvement for {PATIENCE} evaluations, stopping", flush=True)
                    stop = True
                    break
        if stop:
            break

    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(OUT, is_main_process=accelerator.is_main_process)
    if accelerator.is_main_process:
        tok.save_pretrained(OUT)


if __name__ == "__main__":
    main()
