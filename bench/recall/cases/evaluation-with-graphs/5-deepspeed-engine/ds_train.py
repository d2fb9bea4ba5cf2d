import argparse
import json

import deepspeed
import torch
import torch.distributed as dist
from datasets import load_from_disk
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq


def to_device(batch, device):
    return {k: v.to(device) for k, v in batch.items()}


def eval_pass(engine, loader):
    engine.eval()
    total = torch.zeros(2, device=engine.device)
    for batch in loader:
        batch = to_device(batch, engine.device)
        loss = engine(**batch).loss.float()
        total += torch.tensor([loss.item(), 1.0], device=engine.device)
    dist.all_reduce(total)
    engine.train()
    return (total[0] / total[1]).item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="Qwen/Qwen2.5-7B-Instruct")
    ap.add_argument("--data", default="data/tokenized")
    ap.add_argument("--out", default="out/full7b")
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--local_rank", type=int, default=-1)
    args = ap.parse_args()

    deepspeed.init_distributed()
    torch.manual_seed(0)
    with open("ds_zero2.json") as fh:
        ds_config = json.load(fh)
    tok = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16)
    model.gradient_checkpointing_enable()
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=ds_config)

    data = load_from_disk(args.data)
    collate = DataCollatorForSeq2Seq(tok, label_pad_token_id=-100)
    mb = engine.train_micro_batch_size_per_gpu()
    sampler = DistributedSampler(data["train"], shuffle=True)
    train = DataLoader(data["train"], batch_size=mb, sampler=sampler, collate_fn=collate)
    val = DataLoader(data["validation"], batch_size=mb, sampler=DistributedSampler(data["validation"], shuffle=False), collate_fn=collate)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        engine.train()
        for step, batch in enumerate(train):
            loss = engine(**to_device(batch, engine.device)).loss
            engine.backward(loss)
            engine.step()
            if step % 20 == 0 and dist.get_rank() == 0:
                print(f"{epoch} {step} {loss.item():.4f}", flush=True)
        score = eval_pass(engine, val)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: validation {score:.4f}", flush=True)
        engine.save_checkpoint(args.out, tag=f"epoch{epoch}")


if __name__ == "__main__":
    main()
