"""Own LoRA loop with Accelerate for Mistral-7B.

    accelerate launch --mixed_precision bf16 train_loop.py

The loss goes up and down between 2.1 and 2.6 for three epochs and does not fall at all.
"""
import argparse
import json
import math

import torch
from accelerate import Accelerator
from peft import LoraConfig, TaskType, get_peft_model
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup, set_seed

MODEL = "mistralai/Mistral-7B-v0.3"


class Pairs(Dataset):
    """prompt + completion -> ids and labels; the prompt is not learned."""

    def __init__(self, path, tokenizer, max_length=768):
        self.rows = []
        with open(path, encoding="utf-8") as f:
            for line in f:
                row = json.loads(line)
                prompt = tokenizer(f"[INST] {row['prompt']} [/INST]")["input_ids"]
                answer = tokenizer(" " + row["completion"], add_special_tokens=False)["input_ids"]
                ids = (prompt + answer + [tokenizer.eos_token_id])[:max_length]
                labels = ([-100] * len(prompt) + answer + [tokenizer.eos_token_id])[:max_length]
                self.rows.append((ids, labels))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(batch, pad_id):
    ids = [torch.tensor(x[0]) for x in batch]
    labels = [torch.tensor(x[1]) for x in batch]
    mask = [torch.ones_like(x) for x in ids]
    return {
        "input_ids": pad_sequence(ids, batch_first=True, padding_value=pad_id),
        "labels": pad_sequence(labels, batch_first=True, padding_value=-100),
        "attention_mask": pad_sequence(mask, batch_first=True, padding_value=0),
    }


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--data", default="data/hr_pairs.jsonl")
    p.add_argument("--out", default="outputs/hr-lora")
    p.add_argument("--lr", type=float, default=2e-4)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch-size", type=int, default=4)
    p.add_argument("--grad-accum", type=int, default=4)
    p.add_argument("--seed", type=int, default=7)
    return p.parse_args()


def main():
    args = parse_args()
    set_seed(args.seed)
    accelerator = Accelerator(gradient_accumulation_steps=args.grad_accum)

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    tokenizer.pad_token = tokenizer.unk_token
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16)

    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], lr=args.lr, weight_decay=0.01
    )

    lora = LoraConfig(
        task_type=TaskType.CAUSAL_LM,
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
    )
    model = get_peft_model(model, lora)
    model.print_trainable_parameters()

    loader = DataLoader(
        Pairs(args.data, tokenizer),
        batch_size=args.batch_size,
        shuffle=True,
        collate_fn=lambda b: collate(b, tokenizer.pad_token_id),
    )
    steps = args.epochs * math.ceil(len(loader) / args.grad_accum)
    scheduler = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=int(0.05 * steps), num_training_steps=steps)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

    step = 0
    for epoch in range(args.epochs):
        model.train()
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
                step += 1
                if step % 5 == 0:
                    accelerator.print(f"epoch {epoch} step {step}/{steps} loss {loss.item():.4f}")

    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)


if __name__ == "__main__":
    main()
