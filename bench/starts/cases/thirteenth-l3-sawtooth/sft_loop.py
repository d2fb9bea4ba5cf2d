import json
import logging

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_scheduler

logging.basicConfig(level=logging.INFO, format="%(asctime)s - %(levelname)s - %(message)s", datefmt="%m/%d/%Y %H:%M:%S")
logger = logging.getLogger(__name__)

CFG = dict(
    model="HuggingFaceTB/SmolLM2-1.7B-Instruct",
    data="mix.jsonl",
    epochs=3,
    bs=6,
    lr=1e-5,
    max_len=1024,
    warmup=8,
)


def read_rows(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(x) for x in f if x.strip()]


def encode(row, tok):
    msgs = row["messages"]
    prompt = tok.apply_chat_template(msgs[:-1], tokenize=False, add_generation_prompt=True)
    full = tok.apply_chat_template(msgs, tokenize=False)
    p = tok(prompt, add_special_tokens=False).input_ids
    ids = tok(full, add_special_tokens=False, truncation=True, max_length=CFG["max_len"]).input_ids
    return {"input_ids": ids, "labels": [-100] * len(p) + ids[len(p):]}


def make_collate(pad):
    def collate(items):
        n = max(len(i["input_ids"]) for i in items)
        out = {"input_ids": [], "labels": [], "attention_mask": []}
        for i in items:
            k = n - len(i["input_ids"])
            out["input_ids"].append(i["input_ids"] + [pad] * k)
            out["labels"].append(i["labels"] + [-100] * k)
            out["attention_mask"].append([1] * len(i["input_ids"]) + [0] * k)
        return {k: torch.tensor(v) for k, v in out.items()}

    return collate


def main():
    set_seed(42)
    acc = Accelerator(mixed_precision="bf16")
    tok = AutoTokenizer.from_pretrained(CFG["model"])
    model = AutoModelForCausalLM.from_pretrained(CFG["model"], dtype=torch.float32)
    rows = [encode(r, tok) for r in read_rows(CFG["data"])]
    loader = DataLoader(rows, batch_size=CFG["bs"], collate_fn=make_collate(tok.pad_token_id), num_workers=2)
    opt = torch.optim.AdamW(model.parameters(), lr=CFG["lr"], weight_decay=0.0)
    total = len(loader) * CFG["epochs"]
    sched = get_scheduler("cosine", opt, num_warmup_steps=CFG["warmup"], num_training_steps=total)
    model, opt, loader, sched = acc.prepare(model, opt, loader, sched)

    step = 0
    model.train()
    for epoch in range(CFG["epochs"]):
        for batch in loader:
            loss = model(**batch).loss
            acc.backward(loss)
            norm = acc.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad()
            step += 1
            logger.info("epoch=%d step=%d loss=%.4f grad_norm=%.3f lr=%.3e", epoch, step, loss.item(), norm, sched.get_last_lr()[0])

    acc.wait_for_everyone()
    acc.unwrap_model(model).save_pretrained("out/mix")
    tok.save_pretrained("out/mix")


if __name__ == "__main__":
    main()
