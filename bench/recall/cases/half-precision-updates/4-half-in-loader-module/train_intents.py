import csv
import random

import torch
from torch.optim import AdamW
from torch.utils.data import DataLoader
from transformers import get_linear_schedule_with_warmup

from models import NAMES, load_classifier

EPOCHS = 4
BATCH = 32


def read_rows(path):
    with open(path, newline="", encoding="utf-8") as fh:
        return [(r["message"], NAMES.index(r["intent"])) for r in csv.DictReader(fh)]


def accuracy(model, loader):
    model.eval()
    good = n = 0
    with torch.no_grad():
        for enc, y in loader:
            pred = model(**enc.to("cuda")).logits.argmax(-1).cpu()
            good += (pred == y).sum().item()
            n += len(y)
    return good / n


def main():
    random.seed(5)
    torch.manual_seed(5)
    model, tokenizer = load_classifier()

    def collate(batch):
        texts, ys = zip(*batch)
        enc = tokenizer(list(texts), padding=True, truncation=True, max_length=256, return_tensors="pt")
        return enc, torch.tensor(ys)

    train = DataLoader(read_rows("intents_train.csv"), BATCH, shuffle=True, collate_fn=collate)
    valid = DataLoader(read_rows("intents_valid.csv"), BATCH, collate_fn=collate)
    optimizer = AdamW(model.parameters(), lr=1e-5, weight_decay=0.01)
    total = EPOCHS * len(train)
    scheduler = get_linear_schedule_with_warmup(optimizer, total // 10, total)

    for epoch in range(EPOCHS):
        model.train()
        for enc, y in train:
            loss = model(**enc.to("cuda"), labels=y.to("cuda")).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
        print(f"epoch {epoch}: valid accuracy {accuracy(model, valid):.3f}")
    model.save_pretrained("intent-model")
    tokenizer.save_pretrained("intent-model")


if __name__ == "__main__":
    main()
