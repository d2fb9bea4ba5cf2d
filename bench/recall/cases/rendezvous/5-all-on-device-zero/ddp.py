import argparse
import os

import torch
import torch.distributed as dist
from datasets import load_dataset
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup, set_seed

BASE, LIMIT, ACC = "Qwen/Qwen2.5-1.5B-Instruct", 1024, 2


def loader(tok):
    def ids(m, **kw):
        return tok(tok.apply_chat_template(m, tokenize=False, **kw), add_special_tokens=False)["input_ids"]

    def encode(row):
        full = ids(row["messages"])
        n = len(ids(row["messages"][:-1], add_generation_prompt=True))
        return {"input_ids": full[:LIMIT], "labels": ([-100] * n + full[n:])[:LIMIT]}

    def collate(rows):
        w = max(len(r["input_ids"]) for r in rows)

        def pad(xs, v):
            return torch.tensor([x + [v] * (w - len(x)) for x in xs])

        x = [r["input_ids"] for r in rows]
        return {
            "input_ids": pad(x, tok.pad_token_id),
            "attention_mask": pad([[1] * len(i) for i in x], 0),
            "labels": pad([r["labels"] for r in rows], -100),
        }

    ds = load_dataset("HuggingFaceH4/no_robots", split="train")
    ds = ds.map(encode, remove_columns=ds.column_names).filter(lambda r: any(t != -100 for t in r["labels"]))
    return DataLoader(ds, batch_size=4, sampler=DistributedSampler(ds, shuffle=True), collate_fn=collate, drop_last=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--out", required=True)
    a = p.parse_args()
    dist.init_process_group("nccl")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    set_seed(9)
    tok = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32).cuda()
    model.config.use_cache = False
    model = DDP(model, device_ids=[local])
    dl = loader(tok)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01)
    total = len(dl) // ACC
    sched = get_cosine_schedule_with_warmup(opt, int(0.05 * total), total)
    model.train()
    for i, batch in enumerate(dl, 1):
        batch = {k: v.cuda() for k, v in batch.items()}
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(**batch).loss
        (loss / ACC).backward()
        if i % ACC == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
        if i % 50 == 0 and dist.get_rank() == 0:
            print(i, loss.item(), flush=True)
    if dist.get_rank() == 0:
        model.module.save_pretrained(a.out)
        tok.save_pretrained(a.out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
