# torchrun --standalone --nproc_per_node 4 train.py
import torch
import torch.distributed as dist
from datasets import load_dataset
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoTokenizer, get_cosine_schedule_with_warmup, set_seed

from sharded import BASE, build, setup

LIMIT, ACC = 2048, 4


def main():
    setup()
    set_seed(4)
    tok = AutoTokenizer.from_pretrained(BASE)

    def ids(m, **kw):
        return tok(tok.apply_chat_template(m, tokenize=False, **kw), add_special_tokens=False)["input_ids"]

    def encode(row):
        full = ids(row["messages"])
        n = len(ids(row["messages"][:-1], add_generation_prompt=True))
        return {"input_ids": full[:LIMIT], "labels": ([-100] * n + full[n:])[:LIMIT]}

    def collate(rows):
        w = max(len(r["input_ids"]) for r in rows)
        pad = lambda xs, v: torch.tensor([x + [v] * (w - len(x)) for x in xs])
        x = [r["input_ids"] for r in rows]
        return {
            "input_ids": pad(x, tok.pad_token_id),
            "attention_mask": pad([[1] * len(i) for i in x], 0),
            "labels": pad([r["labels"] for r in rows], -100),
        }

    ds = load_dataset("HuggingFaceH4/no_robots", split="train")
    ds = ds.map(encode, remove_columns=ds.column_names).filter(lambda r: any(t != -100 for t in r["labels"]))
    sampler = DistributedSampler(ds, shuffle=True, seed=4)
    dl = DataLoader(ds, batch_size=2, sampler=sampler, collate_fn=collate, drop_last=True)

    model = build()
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, weight_decay=0.0)
    total = len(dl) // ACC
    sched = get_cosine_schedule_with_warmup(opt, int(0.05 * total), total)
    model.train()
    for i, batch in enumerate(dl, 1):
        loss = model(**{k: v.cuda() for k, v in batch.items()}).loss
        (loss / ACC).backward()
        if i % ACC == 0:
            model.clip_grad_norm_(1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
        if i % 80 == 0 and dist.get_rank() == 0:
            print(i, loss.item(), flush=True)

    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if dist.get_rank() == 0:
        torch.save({k: v for k, v in state.items() if "lora_" in k}, "adapter.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
