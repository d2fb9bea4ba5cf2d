import argparse
import json
import os
import time

import deepspeed
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer


class Reports(Dataset):
    def __init__(self, path, tokenizer, max_length):
        self.rows = []
        with open(path, encoding="utf-8") as source:
            for line in source:
                row = json.loads(line)
                head = tokenizer.apply_chat_template(row["messages"][:-1], tokenize=True, add_generation_prompt=True, return_dict=False)
                full = tokenizer.apply_chat_template(row["messages"], tokenize=True, return_dict=False)
                full = full[:max_length]
                labels = [-100] * min(len(head), len(full)) + full[len(head):]
                self.rows.append((full, labels))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows, pad):
    width = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([r + [pad] * (width - len(r)) for r, _ in rows])
    labels = torch.tensor([l + [-100] * (width - len(l)) for _, l in rows])
    mask = torch.tensor([[1] * len(r) + [0] * (width - len(r)) for r, _ in rows])
    return {"input_ids": ids, "labels": labels, "attention_mask": mask}


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen3-4B")
    p.add_argument("--data", required=True)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--max-length", type=int, default=2048)
    p.add_argument("--log-every", type=int, default=20)
    p.add_argument("--out", default="out")
    p.add_argument("--local_rank", type=int, default=-1)
    return deepspeed.add_config_arguments(p).parse_args()


def main():
    args = parse()
    deepspeed.init_distributed()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16, attn_implementation="flash_attention_2")
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.config.use_cache = False

    data = Reports(args.data, tokenizer, args.max_length)
    engine, _, _, scheduler = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())
    sampler = DistributedSampler(data, shuffle=True, seed=3)
    loader = DataLoader(
        data,
        batch_size=engine.train_micro_batch_size_per_gpu(),
        sampler=sampler,
        collate_fn=lambda rows: collate(rows, tokenizer.pad_token_id),
        drop_last=True,
    )
    per_epoch = len(loader) // engine.gradient_accumulation_steps()
    if engine.global_rank == 0:
        print(f"{len(data)} rows, {per_epoch} updates an epoch, {per_epoch * args.epochs} in all", flush=True)

    running, count, start = 0.0, 0, time.time()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            batch = {k: v.to(engine.device) for k, v in batch.items()}
            loss = engine(**batch).loss
            engine.backward(loss)
            boundary = engine.is_gradient_accumulation_boundary()
            engine.step()
            running, count = running + loss.item(), count + 1
            if boundary and engine.global_steps % args.log_every == 0:
                if engine.global_rank == 0:
                    print(
                        f"epoch={epoch} step={engine.global_steps} loss={running / count:.4f} "
                        f"lr={scheduler.get_last_lr()[0]:.3e} gnorm={float(engine.get_global_grad_norm()):.3f} t={time.time() - start:.0f}s",
                        flush=True,
                    )
                running, count = 0.0, 0
        engine.save_checkpoint(args.out, tag=f"epoch{epoch}")


if __name__ == "__main__":
    main()
