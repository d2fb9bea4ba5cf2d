"""Full fine-tune of Llama-3.1-8B on our contract summaries, FSDP full shard, 8 x A100.

    sbatch job.sbatch
"""
import argparse
import functools
import json
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy, StateDictType
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

IGNORE = -100


class Summaries(Dataset):
    """{"contract": ..., "summary": ...} per line; only the summary is learned."""

    def __init__(self, path, tokenizer, max_len):
        self.rows = []
        with open(path) as f:
            for line in f:
                r = json.loads(line)
                messages = [{"role": "user", "content": "Summarise this contract clause:\n\n" + r["contract"]}]
                prompt = tokenizer.apply_chat_template(
                    messages, add_generation_prompt=True, tokenize=True, return_dict=False
                )
                answer = tokenizer(r["summary"] + "<|eot_id|>", add_special_tokens=False)["input_ids"]
                if len(prompt) + len(answer) > max_len:
                    continue
                self.rows.append((prompt + answer, [IGNORE] * len(prompt) + answer))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(batch, pad_id):
    longest = max(len(ids) for ids, _ in batch)
    ids = torch.full((len(batch), longest), pad_id, dtype=torch.long)
    labels = torch.full((len(batch), longest), IGNORE, dtype=torch.long)
    mask = torch.zeros((len(batch), longest), dtype=torch.long)
    for i, (x, y) in enumerate(batch):
        ids[i, : len(x)] = torch.tensor(x)
        labels[i, : len(y)] = torch.tensor(y)
        mask[i, : len(x)] = 1
    return {"input_ids": ids, "labels": labels, "attention_mask": mask}


def log(rank, *what):
    if rank == 0:
        print(time.strftime("%Y-%m-%d %H:%M:%S"), *what, flush=True)


def save_checkpoint(model, tokenizer, folder):
    os.makedirs(folder, exist_ok=True)
    cfg = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, cfg):
        state = model.state_dict()
    model.module.save_pretrained(folder, state_dict=state)
    tokenizer.save_pretrained(folder)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="meta-llama/Llama-3.1-8B-Instruct")
    p.add_argument("--data", default="data/clauses.train.jsonl")
    p.add_argument("--out", default="ckpt/clauses-8b")
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--batch", type=int, default=2)
    p.add_argument("--max-len", type=int, default=4096)
    args = p.parse_args()

    dist.init_process_group("nccl", timeout=timedelta(minutes=30))
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    torch.manual_seed(17)

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"
    data = Summaries(args.data, tokenizer, args.max_len)
    sampler = DistributedSampler(data, shuffle=True, drop_last=True)
    loader = DataLoader(
        data, batch_size=args.batch, sampler=sampler, drop_last=True, num_workers=2,
        collate_fn=functools.partial(collate, pad_id=tokenizer.pad_token_id),
    )

    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32, attn_implementation="sdpa")
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    wrap = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer})
    bf16 = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = FSDP(model, auto_wrap_policy=wrap, mixed_precision=bf16, device_id=local_rank,
                 sharding_strategy=ShardingStrategy.FULL_SHARD, use_orig_params=True)

    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01, betas=(0.9, 0.95))
    total = len(loader) * args.epochs
    schedule = get_cosine_schedule_with_warmup(optimizer, int(0.03 * total), total)
    log(rank, f"{len(data)} rows, {len(loader)} steps per epoch, world size {dist.get_world_size()}")

    step = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for batch in loader:
            batch = {k: v.cuda(non_blocking=True) for k, v in batch.items()}
            loss = model(**batch).loss
            loss.backward()
            norm = model.clip_grad_norm_(1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            if step % 20 == 0:
                shown = loss.detach().clone()
                dist.all_reduce(shown, op=dist.ReduceOp.AVG)
                log(rank, f"epoch {epoch} step {step}/{total} loss {shown.item():.4f} "
                          f"grad_norm {norm.item():.3f} lr {schedule.get_last_lr()[0]:.2e}")

        log(rank, f"epoch {epoch} done, saving")
        if rank == 0:
            save_checkpoint(model, tokenizer, f"{args.out}/epoch-{epoch}")
            log(rank, f"saved {args.out}/epoch-{epoch}")

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
