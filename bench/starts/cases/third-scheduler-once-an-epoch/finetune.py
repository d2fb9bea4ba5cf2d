"""Fine-tune Qwen2.5-0.5B on our FAQ, plain PyTorch."""

import argparse
import json

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup


class FAQ(Dataset):
    def __init__(self, path, tok, max_len=768):
        self.items = []
        for line in open(path, encoding="utf-8"):
            r = json.loads(line)
            prompt = tok.apply_chat_template(
                [{"role": "user", "content": r["question"]}],
                tokenize=False,
                add_generation_prompt=True,
            )
            p = tok(prompt, add_special_tokens=False).input_ids
            a = tok(r["answer"] + "<|im_end|>\n", add_special_tokens=False).input_ids
            ids = (p + a)[:max_len]
            labels = ([-100] * len(p) + a)[:max_len]
            self.items.append((torch.tensor(ids), torch.tensor(labels)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch, pad_id):
    ids, labels = zip(*batch)
    input_ids = pad_sequence(ids, batch_first=True, padding_value=pad_id)
    labels = pad_sequence(labels, batch_first=True, padding_value=-100)
    lengths = torch.tensor([len(x) for x in ids])
    mask = (torch.arange(input_ids.size(1))[None] < lengths[:, None]).long()
    return {"input_ids": input_ids, "attention_mask": mask, "labels": labels}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct")
    ap.add_argument("--data", default="faq.jsonl")
    ap.add_argument("--epochs", type=int, default=5)
    ap.add_argument("--lr", type=float, default=2e-5)
    ap.add_argument("--bs", type=int, default=8)
    args = ap.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    tok = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).to(device)
    ds = FAQ(args.data, tok)
    loader = DataLoader(
        ds, batch_size=args.bs, shuffle=True, collate_fn=lambda b: collate(b, tok.pad_token_id)
    )

    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    scheduler = get_linear_schedule_with_warmup(
        optimizer, num_warmup_steps=100, num_training_steps=len(loader) * args.epochs
    )

    for epoch in range(args.epochs):
        model.train()
        total = 0.0
        for batch in tqdm(loader):
            batch = {k: v.to(device) for k, v in batch.items()}
            with torch.autocast(device_type=device, dtype=torch.bfloat16):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            total += loss.item()
        scheduler.step()
        print(f"epoch {epoch} train_loss {total / len(loader):.4f}")
    model.save_pretrained("faq-model")
    tok.save_pretrained("faq-model")


if __name__ == "__main__":
    main()
