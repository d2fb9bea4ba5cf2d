"""Full fine-tune of SmolLM2-1.7B on Danish legal Q&A, plain PyTorch DDP."""
import json
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup

MODEL = "HuggingFaceTB/SmolLM2-1.7B"
DATA = os.environ.get("DATA", "/scratch/legal/da_qa_train.jsonl")
OUT = os.environ.get("OUT", "/scratch/legal/smollm2-da-qa")
EPOCHS = 2
BATCH = 8
ACCUM = 2
LR = 2e-5
MAX_LEN = 1024


class QADataset(Dataset):
    def __init__(self, path, tokenizer):
        self.tok = tokenizer
        with open(path, encoding="utf-8") as f:
            self.rows = [json.loads(x) for x in f]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        r = self.rows[i]
        q = self.tok(f"Spørgsmål: {r['question']}\nSvar: ", add_special_tokens=False)["input_ids"]
        a = self.tok(r["answer"], add_special_tokens=False)["input_ids"] + [self.tok.eos_token_id]
        return (q + a)[:MAX_LEN], ([-100] * len(q) + a)[:MAX_LEN]


def collate(batch, pad_id):
    n = max(len(x) for x, _ in batch)
    ids = torch.tensor([x + [pad_id] * (n - len(x)) for x, _ in batch])
    labels = torch.tensor([y + [-100] * (n - len(y)) for _, y in batch])
    mask = torch.tensor([[1] * len(x) + [0] * (n - len(x)) for x, _ in batch])
    return ids, mask, labels


def main():
    dist.init_process_group("nccl")
    rank, local_rank, world = dist.get_rank(), int(os.environ["LOCAL_RANK"]), dist.get_world_size()
    torch.cuda.set_device(local_rank)
    torch.manual_seed(7 + rank)

    tok = AutoTokenizer.from_pretrained(MODEL)
    pad_id = tok.convert_tokens_to_ids("<|im_end|>")
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).to(local_rank)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model = DDP(model, device_ids=[local_rank])

    dataset = QADataset(DATA, tok)
    loader = DataLoader(
        dataset,
        batch_size=BATCH,
        shuffle=True,
        num_workers=6,
        pin_memory=True,
        collate_fn=lambda b: collate(b, pad_id),
    )

    opt = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.1, betas=(0.9, 0.95))
    total = EPOCHS * len(loader) // ACCUM
    sched = get_linear_schedule_with_warmup(opt, int(0.05 * total), total)

    if rank == 0:
        print(f"world={world} rows={len(dataset)} batches/epoch={len(loader)} optimizer steps={total}", flush=True)

    for epoch in range(EPOCHS):
        t0 = time.time()
        for i, (ids, mask, labels) in enumerate(loader):
            ids, mask, labels = (t.to(local_rank, non_blocking=True) for t in (ids, mask, labels))
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss / ACCUM
            loss.backward()
            if (i + 1) % ACCUM == 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                sched.step()
                opt.zero_grad(set_to_none=True)
            if rank == 0 and i % 200 == 0:
                print(f"epoch {epoch} batch {i}/{len(loader)} loss {loss.item() * ACCUM:.4f} lr {sched.get_last_lr()[0]:.2e}", flush=True)
        if rank == 0:
            print(f"epoch {epoch} took {(time.time() - t0) / 60:.1f} min", flush=True)
            model.module.save_pretrained(f"{OUT}/epoch{epoch}")
            tok.save_pretrained(f"{OUT}/epoch{epoch}")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
