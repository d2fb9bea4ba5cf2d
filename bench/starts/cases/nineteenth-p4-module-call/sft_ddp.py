# torchrun --nproc_per_node 4 sft_ddp.py
import os
import random

import torch
import torch.distributed as dist
import torch.nn.functional as F
from datasets import load_dataset
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup

MODEL_ID = "Qwen/Qwen2.5-0.5B-Instruct"
MAX_LEN = 1536
MICRO_BS = 8
ACCUM = 2
EPOCHS = 2
LR = 1e-5


def setup():
    dist.init_process_group(backend="nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    random.seed(0)
    torch.manual_seed(0)
    return local_rank, dist.get_rank(), dist.get_world_size()


def make_example(ex, tok):
    prompt = tok.apply_chat_template(
        [{"role": "user", "content": ex["question"]}], tokenize=False, add_generation_prompt=True
    )
    p_ids = tok(prompt, add_special_tokens=False).input_ids
    a_ids = tok(ex["answer"] + "<|im_end|>", add_special_tokens=False).input_ids
    ids = (p_ids + a_ids)[:MAX_LEN]
    labels = ([-100] * len(p_ids) + a_ids)[:MAX_LEN]
    return {"input_ids": ids, "labels": labels}


class Collator:
    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, feats):
        width = max(len(f["input_ids"]) for f in feats)
        out = {"input_ids": [], "attention_mask": [], "labels": []}
        for f in feats:
            k = width - len(f["input_ids"])
            out["input_ids"].append(f["input_ids"] + [self.pad_id] * k)
            out["attention_mask"].append([1] * len(f["input_ids"]) + [0] * k)
            out["labels"].append(f["labels"] + [-100] * k)
        return {k: torch.tensor(v) for k, v in out.items()}


def token_loss(model, batch):
    labels = batch.pop("labels")
    logits = model.module(**batch, use_cache=False).logits
    shift_logits = logits[:, :-1].float()
    shift_labels = labels[:, 1:]
    return F.cross_entropy(
        shift_logits.reshape(-1, model.module.config.vocab_size),
        shift_labels.reshape(-1),
        ignore_index=-100,
        label_smoothing=0.05,
    )


def main():
    local_rank, rank, world = setup()
    tok = AutoTokenizer.from_pretrained(MODEL_ID)
    ds = load_dataset("json", data_files="qa_train.jsonl", split="train")
    ds = ds.map(make_example, fn_kwargs={"tok": tok}, remove_columns=ds.column_names)
    ds = ds.filter(lambda e: any(l != -100 for l in e["labels"]))

    sampler = DistributedSampler(ds, num_replicas=world, rank=rank, shuffle=True, seed=0, drop_last=True)
    loader = DataLoader(
        ds, batch_size=MICRO_BS, sampler=sampler, collate_fn=Collator(tok.pad_token_id),
        num_workers=4, pin_memory=True, drop_last=True,
    )

    model = AutoModelForCausalLM.from_pretrained(MODEL_ID, torch_dtype=torch.float32).cuda(local_rank)
    model = DistributedDataParallel(model, device_ids=[local_rank])

    optim = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)
    n_updates = len(loader) // ACCUM * EPOCHS
    sched = get_linear_schedule_with_warmup(optim, n_updates // 20, n_updates)

    model.train()
    update = 0
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for i, batch in enumerate(loader):
            if i >= len(loader) // ACCUM * ACCUM:
                break
            batch = {k: v.cuda(local_rank, non_blocking=True) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = token_loss(model, batch) / ACCUM
            loss.backward()
            if (i + 1) % ACCUM == 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optim.step()
                sched.step()
                optim.zero_grad(set_to_none=True)
                update += 1
                if update % 20 == 0:
                    avg = loss.detach() * ACCUM
                    dist.all_reduce(avg, op=dist.ReduceOp.AVG)
                    if rank == 0:
                        print(f"epoch {epoch} update {update}/{n_updates} loss {avg.item():.4f}")
        dist.barrier()

    if rank == 0:
        model.module.save_pretrained("out/qa-ddp", safe_serialization=True)
        tok.save_pretrained("out/qa-ddp")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
