"""Own training loop with Accelerate: LoRA on Qwen2.5-1.5B-Instruct for recipe answers.

accelerate launch --mixed_precision bf16 finetune.py --epochs 3
"""
import argparse
import math

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

IGNORE = -100


def encode(example, tokenizer, max_length):
    messages = [{"role": "user", "content": example["instruction"]}]
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    prompt_ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    answer_ids = tokenizer(example["output"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    input_ids = (prompt_ids + answer_ids)[:max_length]
    labels = ([IGNORE] * len(prompt_ids) + answer_ids)[:max_length]
    return {"input_ids": input_ids, "labels": labels}


class Collator:
    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, rows):
        longest = max(len(r["input_ids"]) for r in rows)
        batch = {"input_ids": [], "attention_mask": [], "labels": []}
        for r in rows:
            gap = longest - len(r["input_ids"])
            batch["input_ids"].append(r["input_ids"] + [self.pad_id] * gap)
            batch["attention_mask"].append([1] * len(r["input_ids"]) + [0] * gap)
            batch["labels"].append(r["labels"] + [IGNORE] * gap)
        return {k: torch.tensor(v) for k, v in batch.items()}


def build(args):
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.bfloat16)
    model.config.use_cache = False
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)
    lora = LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(model, lora)
    model.print_trainable_parameters()
    return tokenizer, model, optimizer


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="Qwen/Qwen2.5-1.5B-Instruct")
    ap.add_argument("--data", default="recipes.jsonl")
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--batch-size", type=int, default=4)
    ap.add_argument("--accumulate", type=int, default=4)
    ap.add_argument("--lr", type=float, default=2e-4)
    ap.add_argument("--max-length", type=int, default=1024)
    args = ap.parse_args()

    set_seed(7)
    accelerator = Accelerator(gradient_accumulation_steps=args.accumulate)
    tokenizer, model, optimizer = build(args)

    data = load_dataset("json", data_files=args.data, split="train")
    data = data.map(lambda x: encode(x, tokenizer, args.max_length), remove_columns=data.column_names)
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, collate_fn=Collator(tokenizer.pad_token_id))

    steps = math.ceil(len(loader) / args.accumulate) * args.epochs
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.05 * steps), steps)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

    step = 0
    model.train()
    for epoch in range(args.epochs):
        running = 0.0
        for i, batch in enumerate(loader):
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            running += loss.item()
            if accelerator.sync_gradients:
                step += 1
                if step % 5 == 0:
                    accelerator.print(
                        f"epoch {epoch} step {step}/{steps} loss {running / (i + 1):.4f} lr {scheduler.get_last_lr()[0]:.2e}"
                    )

    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained("out/recipes-lora")
    tokenizer.save_pretrained("out/recipes-lora")


if __name__ == "__main__":
    main()
