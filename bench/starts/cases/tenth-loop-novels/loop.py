"""Continue Llama-3.2-3B on translated novels. LoRA, one 24 GB card, no Trainer."""
import argparse
import itertools
import math
import pathlib
import time

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

BLOCK = 2048


class Blocks(Dataset):
    """Chapters one after the other, cut into blocks of equal length."""

    def __init__(self, folder, tok):
        ids = []
        for path in sorted(pathlib.Path(folder).glob("*.txt")):
            ids += tok(path.read_text(), add_special_tokens=True)["input_ids"] + [tok.eos_token_id]
        self.blocks = [ids[i : i + BLOCK] for i in range(0, len(ids) - BLOCK, BLOCK)]

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, i):
        return torch.tensor(self.blocks[i])


def build(name):
    model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.bfloat16, attn_implementation="sdpa").cuda()
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model = get_peft_model(model, LoraConfig(r=32, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM"))
    model.print_trainable_parameters()
    return model


def validate(model, loader):
    model.eval()
    val_loss, batches = 0, 0
    for ids in loader:
        ids = ids.cuda()
        out = model(input_ids=ids, labels=ids)
        val_loss += out.loss
        batches += 1
    model.train()
    return (val_loss / batches).item()


def memory():
    return f"{torch.cuda.memory_allocated() / 2**30:.1f} GiB now, {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB peak"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="meta-llama/Llama-3.2-3B")
    parser.add_argument("--train", default="chapters/train")
    parser.add_argument("--val", default="chapters/val")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--accum", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--val-every", type=int, default=100)
    args = parser.parse_args()

    tok = AutoTokenizer.from_pretrained(args.model)
    train = DataLoader(Blocks(args.train, tok), batch_size=args.batch, shuffle=True, drop_last=True)
    val = DataLoader(Blocks(args.val, tok), batch_size=args.batch)
    model = build(args.model)
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=args.lr, weight_decay=0.01)
    steps = args.epochs * (len(train) // args.accum)
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.03 * steps), steps)
    print(f"{len(train.dataset)} train blocks, {len(val.dataset)} val blocks, {steps} steps")

    step, began = 0, time.time()
    for epoch in range(args.epochs):
        batches = iter(train)
        for _ in range(len(train) // args.accum):
            total = 0.0
            for ids in itertools.islice(batches, args.accum):
                ids = ids.cuda()
                loss = model(input_ids=ids, labels=ids).loss / args.accum
                loss.backward()
                total += loss.item()
            torch.nn.utils.clip_grad_norm_(params, 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            if step % 10 == 0:
                print(f"step {step}/{steps} loss {total:.4f} ppl {math.exp(total):.2f} lr {scheduler.get_last_lr()[0]:.2e} "
                      f"{time.time() - began:.0f}s {memory()}", flush=True)
            if step % args.val_every == 0:
                print(f"validation at step {step} ...", flush=True)
                print(f"val loss {validate(model, val):.4f}", flush=True)
                model.save_pretrained(f"out/novels-{step}")
    model.save_pretrained("out/novels-final")


if __name__ == "__main__":
    main()
