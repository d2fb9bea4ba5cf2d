import argparse
import json
import logging
import math
import random

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from peft import LoraConfig, TaskType, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
log = logging.getLogger("finetune")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="mistralai/Mistral-7B-Instruct-v0.3")
    p.add_argument("--data", default="contracts.jsonl")
    p.add_argument("--output", default="out/contracts")
    p.add_argument("--max-length", type=int, default=2048)
    p.add_argument("--batch-size", type=int, default=4)
    p.add_argument("--accum", type=int, default=4)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--warmup", type=float, default=0.05)
    p.add_argument("--seed", type=int, default=42)
    return p.parse_args()


def encode(row, tokenizer, max_length):
    messages = [{"role": "user", "content": row["clause"]}]
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    prompt_ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    answer_ids = tokenizer(row["summary"], add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    ids = prompt_ids + answer_ids
    labels = [-100] * len(prompt_ids) + answer_ids
    if len(ids) > max_length:
        return None
    return {"input_ids": ids, "labels": labels}


def make_collate(pad_id):
    def collate(rows):
        width = max(len(r["input_ids"]) for r in rows)
        batch = {"input_ids": [], "attention_mask": [], "labels": []}
        for r in rows:
            gap = width - len(r["input_ids"])
            batch["input_ids"].append(r["input_ids"] + [pad_id] * gap)
            batch["attention_mask"].append([1] * len(r["input_ids"]) + [0] * gap)
            batch["labels"].append(r["labels"] + [-100] * gap)
        return {k: torch.tensor(v) for k, v in batch.items()}

    return collate


def main():
    args = parse_args()
    set_seed(args.seed)
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=args.accum)

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.unk_token_id
    model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.bfloat16)
    model.config.use_cache = False

    with open(args.data) as f:
        rows = [encode(json.loads(line), tokenizer, args.max_length) for line in f]
    rows = [r for r in rows if r is not None]
    random.shuffle(rows)
    loader = DataLoader(rows, batch_size=args.batch_size, shuffle=True, collate_fn=make_collate(pad_id))

    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], lr=args.lr, weight_decay=0.0
    )
    updates = args.epochs * math.ceil(len(loader) / args.accum)
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(args.warmup * updates), updates)

    lora = LoraConfig(
        task_type=TaskType.CAUSAL_LM,
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
    )
    model = get_peft_model(model, lora)
    model.print_trainable_parameters()

    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    model.train()
    step, running = 0, []
    for epoch in range(args.epochs):
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                running.append(loss.detach().float())
                if accelerator.sync_gradients:
                    norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                scheduler.step()
                step += 1
                if step % 10 == 0:
                    mean = torch.stack(running).mean().item()
                    log.info(
                        "epoch %d step %d/%d loss %.4f grad_norm %.3f lr %.3e",
                        epoch, step, updates, mean, norm.item(), scheduler.get_last_lr()[0],
                    )
                    running = []

    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(args.output)
    tokenizer.save_pretrained(args.output)


if __name__ == "__main__":
    main()
