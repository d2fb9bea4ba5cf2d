import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    get_cosine_schedule_with_warmup,
    set_seed,
)

BASE = "Qwen/Qwen2.5-3B-Instruct"


def encode(row, tok):
    head = tok.apply_chat_template([{"role": "user", "content": row["question"]}],
                                   tokenize=False, add_generation_prompt=True)
    p = tok(head, add_special_tokens=False)["input_ids"]
    a = tok(row["answer"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    return {"input_ids": p + a, "attention_mask": [1] * len(p + a), "labels": [-100] * len(p) + a}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--accumulate", type=int, default=8)
    ap.add_argument("--lr", type=float, default=1e-4)
    ap.add_argument("--out", default="runs/gsm8k/adapter")
    args = ap.parse_args()
    set_seed(14)

    tok = AutoTokenizer.from_pretrained(BASE)
    rows = load_dataset("openai/gsm8k", "main", split="train")
    rows = rows.map(encode, fn_kwargs={"tok": tok}, remove_columns=rows.column_names)
    loader = DataLoader(rows, batch_size=4, shuffle=True, drop_last=True,
                        collate_fn=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100))
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16).to("cuda")
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05,
                                             target_modules="all-linear", task_type="CAUSAL_LM"))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=args.lr)
    total_steps = len(loader) * args.epochs
    scheduler = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=30, num_training_steps=total_steps)

    model.train()
    for epoch in range(args.epochs):
        for i, batch in enumerate(loader, 1):
            batch = {k: v.to("cuda") for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss / args.accumulate
            loss.backward()
            if i % args.accumulate == 0 or i == len(loader):
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad(set_to_none=True)
            if i % 80 == 0:
                print(epoch, i, round(loss.item() * args.accumulate, 4), scheduler.get_last_lr()[0])
    model.save_pretrained(args.out)
    tok.save_pretrained(args.out)


if __name__ == "__main__":
    main()
