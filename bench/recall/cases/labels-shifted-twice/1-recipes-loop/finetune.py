import argparse
import json

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup


class RecipeDataset(Dataset):
    def __init__(self, path, tokenizer, max_len):
        self.rows = []
        with open(path, encoding="utf-8") as f:
            for line in f:
                row = json.loads(line)
                text = f"# {row['title']}\n\n{row['body']}"
                ids = tokenizer(text, add_special_tokens=False, truncation=True, max_length=max_len - 1)["input_ids"]
                self.rows.append(ids + [tokenizer.eos_token_id])

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        ids = self.rows[i]
        return {
            "input_ids": torch.tensor(ids[:-1]),
            "labels": torch.tensor(ids[1:]),
        }


def make_collate(pad_id):
    def collate(batch):
        lens = [len(b["input_ids"]) for b in batch]
        input_ids = pad_sequence([b["input_ids"] for b in batch], batch_first=True, padding_value=pad_id)
        labels = pad_sequence([b["labels"] for b in batch], batch_first=True, padding_value=-100)
        mask = torch.arange(input_ids.size(1))[None, :] < torch.tensor(lens)[:, None]
        return {"input_ids": input_ids, "attention_mask": mask.long(), "labels": labels}

    return collate


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-0.5B")
    p.add_argument("--data", default="recipes.jsonl")
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--batch_size", type=int, default=8)
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--max_len", type=int, default=1024)
    p.add_argument("--out", default="recipes-qwen")
    args = p.parse_args()

    torch.manual_seed(0)
    tok = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).cuda()
    ds = RecipeDataset(args.data, tok, args.max_len)
    loader = DataLoader(ds, batch_size=args.batch_size, shuffle=True, collate_fn=make_collate(tok.pad_token_id))
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    total = len(loader) * args.epochs
    sched = get_cosine_schedule_with_warmup(opt, int(0.05 * total), total)

    model.train()
    for epoch in range(args.epochs):
        for step, batch in enumerate(loader):
            batch = {k: v.cuda() for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}")

    model.save_pretrained(args.out)
    tok.save_pretrained(args.out)


if __name__ == "__main__":
    main()
