import argparse

import torch
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup


def encode(row, tokenizer, max_length):
    messages = row["messages"]
    full = tokenizer.apply_chat_template(messages, tokenize=False)
    prompt = tokenizer.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True)
    input_ids = tokenizer(full, add_special_tokens=False)["input_ids"][:max_length]
    n_prompt = len(tokenizer(prompt, add_special_tokens=False)["input_ids"])
    labels = [-100] * min(n_prompt, len(input_ids)) + input_ids[n_prompt:]
    return {"input_ids": input_ids, "labels": labels}


def make_collate(pad_id):
    def collate(batch):
        width = max(len(b["input_ids"]) for b in batch)
        ids, labels, mask = [], [], []
        for b in batch:
            gap = width - len(b["input_ids"])
            ids.append(b["input_ids"] + [pad_id] * gap)
            labels.append(b["labels"] + [-100] * gap)
            mask.append([1] * len(b["input_ids"]) + [0] * gap)
        return {
            "input_ids": torch.tensor(ids),
            "labels": torch.tensor(labels),
            "attention_mask": torch.tensor(mask),
        }

    return collate


def build_loader(path, tokenizer, batch_size, max_length=2048, shuffle=True):
    rows = load_dataset("json", data_files=path, split="train")
    rows = rows.map(lambda r: encode(r, tokenizer, max_length), remove_columns=rows.column_names)
    rows = rows.filter(lambda r: any(x != -100 for x in r["labels"]))
    return DataLoader(rows, batch_size=batch_size, shuffle=shuffle, collate_fn=make_collate(tokenizer.pad_token_id))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="Qwen/Qwen2.5-1.5B-Instruct")
    ap.add_argument("--data", default="data/shop_dialogues.jsonl")
    ap.add_argument("--out", default="out/shop-helper")
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--lr", type=float, default=1e-5)
    args = ap.parse_args()

    torch.manual_seed(17)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float16).to("cuda")
    model.config.use_cache = False

    loader = build_loader(args.data, tokenizer, args.batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    total = len(loader) * args.epochs
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.05 * total), total)

    model.train()
    seen = 0
    for epoch in range(args.epochs):
        for batch in loader:
            batch = {k: v.to("cuda") for k, v in batch.items()}
            loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
            seen += 1
            if seen % 20 == 0:
                print(f"epoch {epoch} step {seen}/{total} loss {loss.item():.4f}")
    model.save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)


if __name__ == "__main__":
    main()
