import argparse

import deepspeed
import numpy as np
import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM

from checkpoints import Checkpointer

DS = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 4,
    "gradient_clipping": 1.0,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2, "overlap_comm": True, "contiguous_gradients": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "betas": [0.9, 0.95], "weight_decay": 0.1}},
    "scheduler": {
        "type": "WarmupCosineLR",
        "params": {"total_num_steps": 5000, "warmup_num_steps": 100},
    },
}


def blocks(path, size, batch, rank):
    data = np.memmap(path, dtype=np.uint32, mode="r")
    rng = np.random.default_rng(100 + rank)
    while True:
        at = rng.integers(0, len(data) - size, size=batch)
        ids = torch.from_numpy(np.stack([data[i : i + size] for i in at]).astype(np.int64))
        yield {"input_ids": ids, "labels": ids.clone()}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--base", default="Qwen/Qwen2.5-3B")
    ap.add_argument("--tokens", default="tokens/train.bin")
    ap.add_argument("--steps", type=int, default=20000)
    ap.add_argument("--out", default="ckpt")
    ap.add_argument("--local_rank", type=int, default=0)
    args = ap.parse_args()

    deepspeed.init_distributed()
    model = AutoModelForCausalLM.from_pretrained(args.base, dtype=torch.bfloat16)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=DS)
    ckpt = Checkpointer(args.out, dist.get_rank())
    stream = blocks(args.tokens, 2048, engine.train_micro_batch_size_per_gpu(), dist.get_rank())

    engine.train()
    for step in range(args.steps):
        batch = {k: v.to(engine.device) for k, v in next(stream).items()}
        loss = engine(**batch).loss
        engine.backward(loss)
        engine.step()
        if step % 50 == 0 and dist.get_rank() == 0:
            print(step, round(loss.item(), 4), flush=True)
        if ckpt.due(step):
            ckpt.save(engine, step, loss.item())


if __name__ == "__main__":
    main()
