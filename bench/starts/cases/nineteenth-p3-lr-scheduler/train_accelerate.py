#!/usr/bin/env python
# accelerate launch --config_file acc_8gpu.yaml train_accelerate.py
import json
import math
from functools import partial

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, get_scheduler

CFG = dict(
    model="HuggingFaceTB/SmolLM2-1.7B-Instruct",
    train="data/train.jsonl",
    valid="data/valid.jsonl",
    out="out/smol-8gpu",
    max_len=2048,
    bs=4,
    lr=2e-5,
    epochs=3,
    warmup=60,
    seed=7,
)


def encode(row, tok):
    ids, labels = [], []
    for i, m in enumerate(row["messages"]):
        upto = tok.apply_chat_template(row["messages"][: i + 1], tokenize=True, return_dict=False)
        new = upto[len(ids):]
        if m["role"] == "assistant":
            head = len(tok.encode("<|im_start|>assistant\n", add_special_tokens=False))
            labels += [-100] * head + new[head:]
        else:
            labels += [-100] * len(new)
        ids = upto
    return {"input_ids": ids[: CFG["max_len"]], "labels": labels[: CFG["max_len"]]}


def collate(rows, pad_id):
    n = max(len(r["input_ids"]) for r in rows)
    return {
        "input_ids": torch.tensor([r["input_ids"] + [pad_id] * (n - len(r["input_ids"])) for r in rows]),
        "attention_mask": torch.tensor([[1] * len(r["input_ids"]) + [0] * (n - len(r["input_ids"])) for r in rows]),
        "labels": torch.tensor([r["labels"] + [-100] * (n - len(r["labels"])) for r in rows]),
    }


@torch.no_grad()
def evaluate(model, loader, accelerator):
    model.eval()
    losses = []
    for batch in loader:
        loss = model(**batch).loss
        losses.append(accelerator.gather_for_metrics(loss.repeat(batch["input_ids"].shape[0])))
    model.train()
    return torch.cat(losses).mean().item()


def main():
    accelerator = Accelerator(mixed_precision="bf16")
    set_seed(CFG["seed"])
    tok = AutoTokenizer.from_pretrained(CFG["model"])
    model = AutoModelForCausalLM.from_pretrained(CFG["model"])
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    raw = load_dataset("json", data_files={"train": CFG["train"], "valid": CFG["valid"]})
    with accelerator.main_process_first():
        enc = raw.map(encode, fn_kwargs={"tok": tok}, remove_columns=raw["train"].column_names)
    fn = partial(collate, pad_id=tok.pad_token_id)
    train_loader = DataLoader(enc["train"], shuffle=True, batch_size=CFG["bs"], collate_fn=fn)
    valid_loader = DataLoader(enc["valid"], batch_size=CFG["bs"], collate_fn=fn)

    optimizer = torch.optim.AdamW(model.parameters(), lr=CFG["lr"], weight_decay=0.01)
    model, optimizer, train_loader, valid_loader = accelerator.prepare(model, optimizer, train_loader, valid_loader)

    total_steps = CFG["epochs"] * len(train_loader)
    scheduler = get_scheduler("linear", optimizer, num_warmup_steps=CFG["warmup"], num_training_steps=total_steps)
    scheduler = accelerator.prepare(scheduler)

    accelerator.print(f"processes {accelerator.num_processes}  rows {len(enc['train'])}  steps {total_steps}")
    bar = tqdm(total=total_steps, disable=not accelerator.is_local_main_process)
    log = open("train_log.jsonl", "a") if accelerator.is_main_process else None
    step = 0
    for epoch in range(CFG["epochs"]):
        for batch in train_loader:
            loss = model(**batch).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1
            bar.update(1)
            if step % 30 == 0:
                mean = accelerator.reduce(loss.detach(), "mean").item()
                if log:
                    log.write(json.dumps({"step": step, "epoch": round(step / len(train_loader), 3),
                                          "loss": round(mean, 4), "lr": scheduler.get_last_lr()[0]}) + "\n")
                    log.flush()
        ev = evaluate(model, valid_loader, accelerator)
        if log:
            log.write(json.dumps({"step": step, "epoch": epoch + 1, "eval_loss": round(ev, 4),
                                  "ppl": round(math.exp(ev), 3)}) + "\n")
            log.flush()

    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(
        CFG["out"], is_main_process=accelerator.is_main_process, save_function=accelerator.save,
        state_dict=accelerator.get_state_dict(model))
    if accelerator.is_main_process:
        tok.save_pretrained(CFG["out"])
    accelerator.end_training()


if __name__ == "__main__":
    main()
