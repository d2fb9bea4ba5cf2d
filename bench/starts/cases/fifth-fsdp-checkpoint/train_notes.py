"""Full fine-tune of Llama 3.1 8B on nursing handovers, Accelerate + FSDP, 8x H100.

    accelerate launch --config_file fsdp.yaml train_notes.py
"""
import json
import math
import os

import torch
from accelerate import Accelerator
from accelerate.logging import get_logger
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
OUT = "/mnt/ckpt/handover-8b"
EPOCHS, BATCH, LR, SAVE_EVERY, MAX_LEN = 2, 2, 8e-6, 250, 3072

logger = get_logger(__name__, log_level="INFO")


def load(path, tokenizer):
    rows = []
    with open(path, encoding="utf-8") as f:
        for line in f:
            row = json.loads(line)
            prompt = tokenizer.apply_chat_template(
                [{"role": "system", "content": row["ward_rules"]}, {"role": "user", "content": row["notes"]}],
                tokenize=False, add_generation_prompt=True,
            )
            p = tokenizer(prompt, add_special_tokens=False).input_ids
            a = tokenizer(row["handover"] + "<|eot_id|>", add_special_tokens=False).input_ids
            if len(p) + len(a) <= MAX_LEN:
                rows.append({"ids": p + a, "labels": [-100] * len(p) + a})
    return rows


def collator(pad_id):
    def collate(batch):
        width = max(len(b["ids"]) for b in batch)
        ids = torch.full((len(batch), width), pad_id)
        labels = torch.full((len(batch), width), -100)
        mask = torch.zeros((len(batch), width), dtype=torch.long)
        for i, b in enumerate(batch):
            n = len(b["ids"])
            ids[i, :n] = torch.tensor(b["ids"])
            labels[i, :n] = torch.tensor(b["labels"])
            mask[i, :n] = 1
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}
    return collate


def save(accelerator, model, tokenizer, name):
    if accelerator.is_main_process:
        path = os.path.join(OUT, name)
        logger.info(f"saving {path}")
        state = accelerator.get_state_dict(model)
        accelerator.unwrap_model(model).save_pretrained(path, state_dict=state, safe_serialization=True)
        tokenizer.save_pretrained(path)
    accelerator.wait_for_everyone()


def main():
    accelerator = Accelerator(gradient_accumulation_steps=4)
    set_seed(7)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.config.use_cache = False

    loader = DataLoader(
        load("handovers.jsonl", tokenizer), batch_size=BATCH, shuffle=True, drop_last=True,
        collate_fn=collator(tokenizer.pad_token_id),
    )
    model = accelerator.prepare(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0, betas=(0.9, 0.95))
    steps = math.ceil(len(loader) / accelerator.num_processes / 4) * EPOCHS
    scheduler = get_cosine_schedule_with_warmup(
        optimizer, 50 * accelerator.num_processes, steps * accelerator.num_processes
    )
    optimizer, loader, scheduler = accelerator.prepare(optimizer, loader, scheduler)

    done = 0
    model.train()
    for epoch in range(EPOCHS):
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                done += 1
                if done % 10 == 0:
                    mean = accelerator.gather(loss.detach()).mean().item()
                    logger.info(f"epoch {epoch} step {done}/{steps} loss {mean:.4f} lr {scheduler.get_last_lr()[0]:.2e}")
                if done % SAVE_EVERY == 0:
                    save(accelerator, model, tokenizer, f"step-{done}")
    save(accelerator, model, tokenizer, "final")


if __name__ == "__main__":
    main()
