import argparse
import math
import os

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, get_cosine_schedule_with_warmup


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-1.5B-Instruct")
    p.add_argument("--train_file", default="data/train.jsonl")
    p.add_argument("--eval_file", default="data/eval.jsonl")
    p.add_argument("--output_dir", default="out/lora")
    p.add_argument("--lr", type=float, default=2e-4)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch_size", type=int, default=8)
    p.add_argument("--accum", type=int, default=2)
    p.add_argument("--max_length", type=int, default=1024)
    p.add_argument("--seed", type=int, default=1234)
    return p.parse_args()


def main():
    args = parse_args()
    set_seed(args.seed)
    accelerator = Accelerator(gradient_accumulation_steps=args.accum, mixed_precision="bf16")

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model)

    # no weight decay on biases and norms
    decay, no_decay = [], []
    for name, param in model.named_parameters():
        (no_decay if param.ndim < 2 else decay).append(param)
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.01}, {"params": no_decay, "weight_decay": 0.0}],
        lr=args.lr,
        betas=(0.9, 0.95),
    )

    model = get_peft_model(
        model,
        LoraConfig(
            r=16,
            lora_alpha=32,
            lora_dropout=0.05,
            target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
            task_type="CAUSAL_LM",
        ),
    )
    if accelerator.is_main_process:
        model.print_trainable_parameters()

    def encode(row):
        prompt = tokenizer.apply_chat_template(row["messages"][:-1], tokenize=False, add_generation_prompt=True)
        answer = row["messages"][-1]["content"] + "<|im_end|>"
        a = tokenizer(prompt, add_special_tokens=False).input_ids
        b = tokenizer(answer, add_special_tokens=False).input_ids
        ids = (a + b)[: args.max_length]
        labels = ([-100] * len(a) + b)[: args.max_length]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}

    with accelerator.main_process_first():
        data = load_dataset("json", data_files={"train": args.train_file, "eval": args.eval_file})
        data = data.map(encode, remove_columns=data["train"].column_names)

    collate = DataCollatorForSeq2Seq(tokenizer, padding=True, label_pad_token_id=-100)
    train_loader = DataLoader(data["train"], batch_size=args.batch_size, shuffle=True, collate_fn=collate, drop_last=True)
    eval_loader = DataLoader(data["eval"], batch_size=args.batch_size, collate_fn=collate)

    steps_per_epoch = math.ceil(len(train_loader) / args.accum)
    total = steps_per_epoch * args.epochs
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.03 * total), total)
    model, optimizer, train_loader, eval_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, eval_loader, scheduler
    )

    step = 0
    for epoch in range(args.epochs):
        model.train()
        for batch in train_loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                step += 1
                if step % 20 == 0:
                    accelerator.print(
                        f"epoch {epoch} step {step}/{total} loss {loss.item():.4f} lr {scheduler.get_last_lr()[0]:.3e}"
                    )

        model.eval()
        total_loss, batches = 0.0, 0
        with torch.no_grad():
            for batch in eval_loader:
                total_loss += accelerator.gather(model(**batch).loss.detach()).mean().item()
                batches += 1
        accelerator.print(f"== epoch {epoch} eval_loss {total_loss / batches:.6f}")

    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(args.output_dir, save_function=accelerator.save)
    if accelerator.is_main_process:
        tokenizer.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main()
