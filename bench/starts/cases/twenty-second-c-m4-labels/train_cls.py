import json

import torch
from sklearn.metrics import accuracy_score, f1_score
from torch.utils.data import DataLoader
from tqdm import tqdm
from transformers import AutoModelForSequenceClassification, AutoTokenizer, get_linear_schedule_with_warmup

from common import Encoder, label_map, read

BASE = "meta-llama/Llama-3.2-1B-Instruct"


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    pred, gold = [], []
    for batch in loader:
        y = batch.pop("labels")
        pred += model(**batch.to("cuda")).logits.argmax(-1).tolist()
        gold += y.tolist()
    model.train()
    return {"accuracy": accuracy_score(gold, pred), "macro_f1": f1_score(gold, pred, average="macro")}


def main():
    torch.manual_seed(3)
    train, val = read("train.csv"), read("val.csv")
    l2i = label_map(train)
    tok = AutoTokenizer.from_pretrained(BASE)
    tok.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForSequenceClassification.from_pretrained(BASE, num_labels=len(l2i), dtype=torch.bfloat16).cuda()
    model.config.pad_token_id = tok.pad_token_id
    enc = Encoder(tok, l2i)
    dl = DataLoader(train, 16, shuffle=True, collate_fn=enc)
    vl = DataLoader(val, 32, collate_fn=enc)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-5)
    sched = get_linear_schedule_with_warmup(opt, 30, 3 * len(dl))
    for epoch in range(3):
        for batch in tqdm(dl):
            loss = model(**batch.to("cuda")).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad()
        print("epoch", epoch, "loss", round(loss.item(), 4), json.dumps(evaluate(model, vl)))
    model.save_pretrained("model")
    tok.save_pretrained("model")


if __name__ == "__main__":
    main()
