import math
from dataclasses import dataclass, field

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    get_scheduler,
)


@dataclass
class Args:
    model: str = field(default="meta-llama/Llama-3.1-8B-Instruct")
    train_file: str = field(default="data/train.jsonl")
    eval_file: str = field(default="data/dev.jsonl")
    max_length: int = field(default=2048)
    batch_size: int = field(default=4)
    lr: float = field(default=1e-5)
    warmup_ratio: float = field(default=0.03)
    epochs: int = field(default=3)
    seed: int = field(default=11)
    output: str = field(default="out")


def encode(row, tok, max_length):
    prompt = tok.apply_chat_template(row["messages"][:-1], add_generation_prompt=True, tokenize=True, return_dict=False)
    full = tok.apply_chat_template(row["messages"], tokenize=True, return_dict=False)[:max_length]
    labels = [-100] * min(len(prompt), len(full)) + full[len(prompt) :]
    return {"input_ids": full, "attention_mask": [1] * len(full), "labels": labels}


@torch.no_grad()
def evaluate(accelerator, model, loader):
    model.eval()
    total = torch.zeros(2, device=accelerator.device)
    for batch in loader:
        out = model(**batch)
        n = (batch["labels"][:, 1:] != -100).sum()
        total += torch.stack([out.loss.float() * n, n.float()])
    total = accelerator.reduce(total, "sum")
    model.train()
    return (total[0] / total[1]).item()


def main():
    (args,) = HfArgumentParser(Args).parse_args_into_dataclasses()
    accelerator = Accelerator(mixed_precision="bf16")
    set_seed(args.seed)

    tok = AutoTokenizer.from_pretrained(args.model)
    tok.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(args.model, attn_implementation="sdpa")
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.config.use_cache = False

    raw = load_dataset("json", data_files={"train": args.train_file, "dev": args.eval_file})
    with accelerator.main_process_first():
        data = raw.map(lambda r: encode(r, tok, args.max_length), remove_columns=raw["train"].column_names)
    collator = DataCollatorForSeq2Seq(tok, label_pad_token_id=-100, pad_to_multiple_of=8)
    train_loader = DataLoader(data["train"], shuffle=True, batch_size=args.batch_size, collate_fn=collator)
    dev_loader = DataLoader(data["dev"], batch_size=args.batch_size, collate_fn=collator)

    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)
    model, optimizer, train_loader, dev_loader = accelerator.prepare(model, optimizer, train_loader, dev_loader)

    steps_per_epoch = len(train_loader)
    max_steps = args.epochs * steps_per_epoch
    scheduler = accelerator.prepare(
        get_scheduler(
            "linear",
            optimizer=optimizer,
            num_warmup_steps=math.ceil(args.warmup_ratio * max_steps),
            num_training_steps=max_steps,
        )
    )
    accelerator.print(f"processes {accelerator.num_processes}  steps/epoch {steps_per_epoch}  total {max_steps}")

    step, running = 0, 0.0
    for epoch in range(args.epochs):
        for batch in train_loader:
            loss = model(**batch).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1
            running += loss.item()
            if step % 25 == 0:
                accelerator.print(
                    f"epoch {epoch} step {step}/{max_steps} loss {running / 25:.4f} lr {scheduler.get_last_lr()[0]:.3e}"
                )
                running = 0.0
        dev = evaluate(accelerator, model, dev_loader)
        accelerator.print(f"epoch {epoch} dev_loss {dev:.4f}")

    accelerator.wait_for_everyone()
    state = accelerator.get_state_dict(model)
    accelerator.unwrap_model(model).save_pretrained(
        args.output, state_dict=state, is_main_process=accelerator.is_main_process, save_function=accelerator.save
    )
    if accelerator.is_main_process:
        tok.save_pretrained(args.output)


if __name__ == "__main__":
    main()
