import argparse
import json

import deepspeed
import torch
from datasets import load_dataset
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--base", required=True)
    p.add_argument("--updates", type=int, default=600)
    p.add_argument("--out", required=True)
    p.add_argument("--local_rank", type=int, default=-1)
    return p.parse_args()


class Rows:
    def __init__(self, tok, limit=2048):
        self.tok, self.limit = tok, limit

    def ids(self, messages, **kw):
        text = self.tok.apply_chat_template(messages, tokenize=False, **kw)
        return self.tok(text, add_special_tokens=False)["input_ids"]

    def encode(self, row):
        full = self.ids(row["messages"])
        n = len(self.ids(row["messages"][:-1], add_generation_prompt=True))
        return {"input_ids": full[: self.limit], "labels": ([-100] * n + full[n:])[: self.limit]}

    def collate(self, rows):
        w = max(len(r["input_ids"]) for r in rows)
        def pad(xs, v):
            return torch.tensor([x + [v] * (w - len(x)) for x in xs])
        ids = [r["input_ids"] for r in rows]
        return {
            "input_ids": pad(ids, self.tok.pad_token_id),
            "attention_mask": pad([[1] * len(x) for x in ids], 0),
            "labels": pad([r["labels"] for r in rows], -100),
        }


def main():
    a = parse()
    deepspeed.init_distributed()
    conf = json.load(open("engine.json"))
    tok = AutoTokenizer.from_pretrained(a.base)
    model = AutoModelForCausalLM.from_pretrained(a.base, dtype=torch.bfloat16)
    model.gradient_checkpointing_enable()
    rows = Rows(tok)
    ds = load_dataset("HuggingFaceH4/no_robots", split="train")
    ds = ds.map(rows.encode, remove_columns=ds.column_names)
    ds = ds.filter(lambda r: any(x != -100 for x in r["labels"]))
    engine, _, _, sched = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=conf)
    sampler = DistributedSampler(ds, shuffle=True, seed=4)
    dl = DataLoader(
        ds, batch_size=conf["train_micro_batch_size_per_gpu"], sampler=sampler, collate_fn=rows.collate, drop_last=True
    )
    epoch = 0
    while engine.global_steps < a.updates:
        sampler.set_epoch(epoch)
        for batch in dl:
            batch = {k: v.to(engine.device) for k, v in batch.items()}
            loss = engine(**batch).loss
            engine.backward(loss)
            engine.step()
            if engine.global_steps >= a.updates:
                break
        epoch += 1
    engine.save_16bit_model(a.out)
    if torch.distributed.get_rank() == 0:
        tok.save_pretrained(a.out)
        engine.module.config.save_pretrained(a.out)


if __name__ == "__main__":
    main()
