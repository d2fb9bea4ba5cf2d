import argparse
import logging
import math
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
log = logging.getLogger("finetune")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="mistralai/Mistral-7B-Instruct-v0.3")
    p.add_argument("--train-file", default="data/train.jsonl")
    p.add_argument("--eval-file", default="data/eval.jsonl")
    p.add_argument("--output-dir", default="out")
    p.add_argument("--lr", type=float, default=2e-4)
    p.add_argument("--weight-decay", type=float, default=0.0)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch-size", type=int, default=4)
    p.add_argument("--grad-accum", type=int, default=4)
    p.add_argument("--max-length", type=int, default=2048)
    p.add_argument("--warmup-ratio", type=float, default=0.03)
    p.add_argument("--lora-r", type=int, default=16, help="0 = train all weights")
    p.add_argument("--lora-alpha", type=int, default=32)
    p.add_argument("--log-every", type=int, default=10)
    p.add_argument("--eval-every", type=int, default=100)
    p.add_argument("--seed", type=int, default=42)
    return p.parse_args()


def encode(row, tokenizer, max_length):
    prompt = tokenizer.apply_chat_template(row["messages"][:-1], tokenize=True, return_dict=False)
    full = tokenizer.apply_chat_template(row["messages"], tokenize=True, return_dict=False)[:max_length]
    labels = [-100] * len(prompt) + full[len(prompt) :]
    return {"input_ids": full, "labels": labels[:max_length]}


def make_collate(pad_id):
    def collate(rows):
        n = max(len(r["input_ids"]) for r in rows)
        ids, mask, labels = [], [], []
        for r in rows:
            k = n - len(r["input_ids"])
            ids.append(r["input_ids"] + [pad_id] * k)
            mask.append([1] * len(r["input_ids"]) + [0] * k)
            labels.append(r["labels"] + [-100] * k)
        return {
            "input_ids": torch.tensor(ids),
            "attention_mask": torch.tensor(mask),
            "labels": torch.tensor(labels),
        }

    return collate


def build_optimizer(model, args):
    decay, no_decay = [], []
    for name, param in model.named_parameters():
        if not param.requires_grad:
            continue
        (no_decay if param.ndim < 2 else decay).append(param)
    groups = [
        {"params": decay, "weight_decay": args.weight_decay},
        {"params": no_decay, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95))


@torch.no_grad()
def evaluate(model, loader, accelerator):
    model.eval()
    losses = []
    for batch in loader:
        losses.append(accelerator.gather(model(**batch).loss.detach().float().reshape(1)))
    model.train()
    return torch.cat(losses).mean().item()


def main():
    args = parse_args()
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=args.grad_accum)
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16)
    model.config.use_cache = False
    optimizer = build_optimizer(model, args)

    if args.lora_r > 0:
        lora = LoraConfig(
            r=args.lora_r,
            lora_alpha=args.lora_alpha,
            lora_dropout=0.05,
            target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
            task_type="CAUSAL_LM",
        )
        model = get_peft_model(model, lora)
        model.print_trainable_parameters()

    data = load_dataset("json", data_files={"train": args.train_file, "eval": args.eval_file})
    data = data.map(
        encode,
        fn_kwargs={"tokenizer": tokenizer, "max_length": args.max_length},
        remove_columns=data["train"].column_names,
    )
    collate = make_collate(tokenizer.unk_token_id)
    train_loader = DataLoader(data["train"], batch_size=args.batch_size, shuffle=True, collate_fn=collate)
    eval_loader = DataLoader(data["eval"], batch_size=args.batch_size, collate_fn=collate)

    model, optimizer, train_loader, eval_loader = accelerator.prepare(
        model, optimizer, train_loader, eval_loader
    )
    steps = math.ceil(len(train_loader) / args.grad_accum) * args.epochs
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(steps * args.warmup_ratio), steps)
    log.info("rows %d, steps per run %d", len(data["train"]), steps)

    step, running, t0 = 0, [], time.time()
    model.train()
    for epoch in range(args.epochs):
        for batch in train_loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                if accelerator.sync_gradients:
                    scheduler.step()
                optimizer.zero_grad()
            running.append(loss.item())
            if not accelerator.sync_gradients:
                continue
            step += 1
            if step % args.log_every == 0:
                log.info(
                    "epoch %d step %d/%d loss %.4f lr %.3e %.2f s/step",
                    epoch, step, steps, sum(running) / len(running),
                    scheduler.get_last_lr()[0], (time.time() - t0) / args.log_every,
                )
                running, t0 = [], time.time()
            if step % args.eval_every == 0:
                log.info("step %d eval_loss %.4f", step, evaluate(model, eval_loader, accelerator))

    accelerator.unwrap_model(model).save_pretrained(args.output_dir)
    tokenizer.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main()
