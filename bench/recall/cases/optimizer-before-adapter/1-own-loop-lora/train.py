import argparse
import math

import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, get_linear_schedule_with_warmup

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"


def encode(row, tok):
    head = tok.apply_chat_template([{"role": "user", "content": row["instruction"]}], tokenize=False, add_generation_prompt=True)
    h = tok(head, add_special_tokens=False)["input_ids"]
    t = tok(row["output"] + tok.eos_token, add_special_tokens=False)["input_ids"]
    ids = (h + t)[:1024]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": ([-100] * len(h) + t)[:1024]}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data", default="data/train.jsonl")
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--lr", type=float, default=2e-4)
    p.add_argument("--out", default="out/lora")
    args = p.parse_args()

    torch.manual_seed(0)
    tok = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)

    config = LoraConfig(
        r=16, lora_alpha=32, lora_dropout=0.05, task_type="CAUSAL_LM",
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
    )
    model = get_peft_model(model, config)
    model.print_trainable_parameters()

    ds = load_dataset("json", data_files=args.data, split="train")
    ds = ds.map(encode, fn_kwargs={"tok": tok}, remove_columns=ds.column_names)
    loader = DataLoader(ds, batch_size=4, shuffle=True, collate_fn=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100))
    steps = args.epochs * math.ceil(len(loader) / 4)
    scheduler = get_linear_schedule_with_warmup(optimizer, int(0.05 * steps), steps)

    model.train()
    for epoch in range(args.epochs):
        for i, batch in enumerate(loader):
            batch = {k: v.cuda() for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss
            (loss / 4).backward()
            if (i + 1) % 4 == 0 or i + 1 == len(loader):
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad(set_to_none=True)
            if i % 40 == 0:
                print(f"{epoch}:{i} loss={loss.item():.4f} lr={scheduler.get_last_lr()[0]:.2e}")
    model.save_pretrained(args.out)
    tok.save_pretrained(args.out)


if __name__ == "__main__":
    main()
