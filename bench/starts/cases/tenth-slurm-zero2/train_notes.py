"""Full fine-tuning of a 3B model on discharge notes, 4 GPUs, DeepSpeed ZeRO-2."""
import argparse
import json
import pathlib

import deepspeed
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="/scratch/models/Qwen2.5-3B")
    parser.add_argument("--data", default="notes_train.jsonl")
    parser.add_argument("--out", default="ckpt/notes-3b")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--max-len", type=int, default=1024)
    parser.add_argument("--local_rank", type=int, default=-1)
    return deepspeed.add_config_arguments(parser).parse_args()


class Notes(Dataset):
    def __init__(self, path, tok, max_len):
        self.rows = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
        self.tok, self.max_len = tok, max_len

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        prompt = self.tok(f"Findings:\n{row['findings']}\n\nLetter:\n", add_special_tokens=False)["input_ids"]
        answer = self.tok(row["letter"], add_special_tokens=False)["input_ids"] + [self.tok.eos_token_id]
        ids = (prompt + answer)[: self.max_len]
        labels = ([-100] * len(prompt) + answer)[: self.max_len]
        return ids, labels


def collate(pad):
    def inner(batch):
        width = max(len(ids) for ids, _ in batch)
        ids = torch.tensor([a + [pad] * (width - len(a)) for a, _ in batch])
        labels = torch.tensor([b + [-100] * (width - len(b)) for _, b in batch])
        mask = torch.tensor([[1] * len(a) + [0] * (width - len(a)) for a, _ in batch])
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}

    return inner


def main():
    args = parse()
    deepspeed.init_distributed()
    tok = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.bfloat16)
    model.gradient_checkpointing_enable()

    data = Notes(args.data, tok, args.max_len)
    engine, _, _, scheduler = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())
    sampler = DistributedSampler(data, shuffle=True, seed=1)
    loader = DataLoader(
        data,
        batch_size=engine.train_micro_batch_size_per_gpu(),
        sampler=sampler,
        collate_fn=collate(tok.pad_token_id),
        num_workers=4,
        drop_last=True,
    )
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        engine.train()
        for batch in loader:
            batch = {k: v.to(engine.device) for k, v in batch.items()}
            loss = engine(**batch).loss
            engine.backward(loss)
            engine.step()
            if engine.is_gradient_accumulation_boundary() and engine.global_steps % 10 == 0:
                mean = loss.detach().clone()
                dist.all_reduce(mean, op=dist.ReduceOp.AVG)
                if dist.get_rank() == 0:
                    print(f"epoch {epoch} step {engine.global_steps} loss {mean.item():.4f} "
                          f"lr {engine.get_lr()[0]:.3e} grad_norm {float(engine.get_global_grad_norm()):.3f}", flush=True)
    engine.save_16bit_model(args.out)
    if dist.get_rank() == 0:
        tok.save_pretrained(args.out)


if __name__ == "__main__":
    main()
