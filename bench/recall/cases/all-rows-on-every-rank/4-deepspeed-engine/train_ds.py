import argparse

import deepspeed
import torch
from torch.utils.data import DataLoader, RandomSampler
from transformers import AutoModelForCausalLM, AutoTokenizer

from dataset import ChatRows


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--model_name", default="Qwen/Qwen2.5-7B-Instruct")
    p.add_argument("--data", default="chat.jsonl")
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--save_dir", default="ckpt")
    p.add_argument("--local_rank", type=int, default=-1)
    return deepspeed.add_config_arguments(p).parse_args()


def main():
    args = parse()
    deepspeed.init_distributed()
    torch.manual_seed(1)
    tok = AutoTokenizer.from_pretrained(args.model_name)
    model = AutoModelForCausalLM.from_pretrained(args.model_name, dtype=torch.bfloat16)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    engine, _, _, _ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())

    data = ChatRows(args.data, tok, 2048)
    loader = DataLoader(
        data,
        batch_size=engine.train_micro_batch_size_per_gpu(),
        sampler=RandomSampler(data),
        collate_fn=data.collate,
        num_workers=2,
    )
    engine.train()
    for epoch in range(args.epochs):
        for step, batch in enumerate(loader):
            batch = {k: v.to(engine.device) for k, v in batch.items()}
            loss = engine(**batch).loss
            engine.backward(loss)
            engine.step()
            if engine.global_rank == 0 and step % 50 == 0:
                print(epoch, step, f"{loss.item():.4f}", flush=True)
        engine.save_checkpoint(args.save_dir, tag=f"epoch{epoch}")


if __name__ == "__main__":
    main()
