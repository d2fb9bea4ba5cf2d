import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, set_seed

DEVICE = "cuda"


def encode(row, tok):
    head = tok.apply_chat_template(
        [{"role": "user", "content": row["email"]}], tokenize=False, add_generation_prompt=True
    )
    a = tok(head, add_special_tokens=False)["input_ids"]
    b = tok(head + row["reply"] + tok.eos_token, add_special_tokens=False)["input_ids"]
    return {"input_ids": b, "attention_mask": [1] * len(b), "labels": [-100] * len(a) + b[len(a):]}


def make_loader(path, tok, batch_size, shuffle):
    ds = load_dataset("json", data_files=path, split="train")
    ds = ds.map(encode, fn_kwargs={"tok": tok}, remove_columns=ds.column_names)
    ds = ds.filter(lambda r: len(r["input_ids"]) <= 1024)
    return DataLoader(ds, batch_size=batch_size, shuffle=shuffle, collate_fn=DataCollatorForSeq2Seq(tok))


def validate(model, loader):
    model.eval()
    total, tokens = 0.0, 0
    for batch in tqdm(loader, desc="valid"):
        batch = {k: v.to(DEVICE) for k, v in batch.items()}
        out = model(**batch)  # validation
        n = (batch["labels"][:, 1:] != -100).sum().item()
        total += out.loss.item() * n
        tokens += n
    model.train()
    return total / tokens


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-3B-Instruct")
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--lr", type=float, default=2e-4)
    args = p.parse_args()
    set_seed(11)

    tok = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16).to(DEVICE)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    train = make_loader("data/mail_train.jsonl", tok, 8, True)
    valid = make_loader("data/mail_valid.jsonl", tok, 16, False)
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=args.lr)

    best = float("inf")
    model.train()
    for epoch in range(args.epochs):
        for batch in tqdm(train):
            batch = {k: v.to(DEVICE) for k, v in batch.items()}
            loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        score = validate(model, valid)
        print(f"epoch {epoch}: valid loss {score:.4f}")
        if score < best:
            best = score
            model.save_pretrained("runs/mail")
            tok.save_pretrained("runs/mail")


if __name__ == "__main__":
    main()
