"""LoRA on Qwen2.5-3B-Instruct, own loop. accelerate launch train_loop.py --data data/train.jsonl"""
import argparse
import json
import math
import random
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup


class QADataset(Dataset):
    def __init__(self, path, tokenizer, max_length):
        self.rows = []
        for line in open(path, encoding="utf-8"):
            r = json.loads(line)
            messages = [{"role": "user", "content": r["question"]}]
            prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            prompt_ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
            answer_ids = tokenizer(r["answer"] + "<|im_end|>", add_special_tokens=False)["input_ids"]
            ids = (prompt_ids + answer_ids)[:max_length]
            labels = ([-100] * len(prompt_ids) + answer_ids)[:max_length]
            self.rows.append((ids, labels))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def make_collate(pad_id):
    def collate(rows):
        width = max(len(ids) for ids, _ in rows)
        ids = torch.tensor([r + [pad_id] * (width - len(r)) for r, _ in rows])
        labels = torch.tensor([l + [-100] * (width - len(l)) for _, l in rows])
        mask = torch.tensor([[1] * len(r) + [0] * (width - len(r)) for r, _ in rows])
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}

    return collate


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-3B-Instruct")
    p.add_argument("--data", default="data/train.jsonl")
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--batch-size", type=int, default=4)
    p.add_argument("--accum", type=int, default=4)
    p.add_argument("--lr", type=float, default=2e-4)
    p.add_argument("--max-length", type=int, default=1024)
    p.add_argument("--out", default="outputs/qa-lora")
    return p.parse_args()


def main():
    args = parse()
    set_seed(17)
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=args.accum)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    data = QADataset(args.data, tokenizer, args.max_length)
    loader = DataLoader(
        data, batch_size=args.batch_size, shuffle=True, collate_fn=make_collate(tokenizer.pad_token_id)
    )

    model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)

    lora = LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(model, lora)
    model.print_trainable_parameters()

    steps = math.ceil(len(loader) / args.accum) * args.epochs
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.05 * steps), steps)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

    model.train()
    step, seen, began = 0, [], time.time()
    for epoch in range(args.epochs):
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            seen.append(loss.item())
            if accelerator.sync_gradients:
                step += 1
                if step % 5 == 0:
                    accelerator.print(
                        f"epoch {epoch} step {step}/{steps} loss {sum(seen) / len(seen):.4f} "
                        f"lr {scheduler.get_last_lr()[0]:.2e} {time.time() - began:.0f}s"
                    )
                    seen = []
    accelerator.unwrap_model(model).save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)


if __name__ == "__main__":
    main()
