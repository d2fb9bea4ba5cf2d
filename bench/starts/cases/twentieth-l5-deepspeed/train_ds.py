import argparse
import json
import os

import deepspeed
import torch
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer

from data import PackedDataset


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model_name", default="meta-llama/Llama-3.1-8B")
    p.add_argument("--train_file", default="packed_4k.npy")
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--micro_batch", type=int, default=2)
    p.add_argument("--save_dir", default="ckpts")
    p.add_argument("--ds_config", default="ds_config.json")
    p.add_argument("--local_rank", type=int, default=-1)
    return p.parse_args()


def main():
    args = get_args()
    deepspeed.init_distributed()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    rank = torch.distributed.get_rank()
    if rank == 0:
        print("args:", json.dumps(vars(args)))

    with open(args.ds_config) as f:
        ds_config = json.load(f)
    ds_config["train_micro_batch_size_per_gpu"] = args.micro_batch

    model = AutoModelForCausalLM.from_pretrained(args.model_name, torch_dtype=torch.bfloat16, attn_implementation="flash_attention_2")
    model.gradient_checkpointing_enable()
    model.config.use_cache = False

    engine, optimizer, _, _ = deepspeed.initialize(
        args=args, model=model, model_parameters=model.parameters(), config=ds_config
    )

    data = PackedDataset(args.train_file, seq_len=4096)
    sampler = DistributedSampler(data, shuffle=True, seed=3)
    loader = DataLoader(data, batch_size=args.micro_batch, sampler=sampler, num_workers=4, pin_memory=True)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for i, ids in enumerate(loader):
            ids = ids.to(engine.device)
            loss = engine(input_ids=ids, labels=ids).loss
            engine.backward(loss)
            engine.step()
            if engine.is_gradient_accumulation_boundary() and engine.global_steps % 10 == 0 and rank == 0:
                print(f"epoch {epoch} step {engine.global_steps} loss {loss.item():.4f}", flush=True)
        engine.save_checkpoint(args.save_dir, tag=f"epoch{epoch}")


if __name__ == "__main__":
    main()
