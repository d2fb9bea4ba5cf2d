import argparse
import os

import deepspeed
import torch
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer

from rows import ChatRows, PadRight


def ds_config(n_rows, micro, accum, epochs, lr):
    per_epoch = n_rows // micro
    return {
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": accum,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 2, "overlap_comm": True},
        "optimizer": {"type": "AdamW", "params": {"lr": lr, "weight_decay": 0.01}},
        "scheduler": {
            "type": "WarmupDecayLR",
            "params": {
                "warmup_min_lr": 0.0,
                "warmup_max_lr": lr,
                "warmup_num_steps": int(0.05 * per_epoch * epochs),
                "total_num_steps": per_epoch * epochs,
            },
        },
    }


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0)))
    ap.add_argument("--model", default="Qwen/Qwen2.5-3B-Instruct")
    ap.add_argument("--epochs", type=int, default=2)
    args = ap.parse_args()
    deepspeed.init_distributed()
    torch.cuda.set_device(args.local_rank)
    torch.manual_seed(6)

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
    model.config.use_cache = False
    rows = ChatRows("legal_chat.jsonl", tokenizer)
    sampler = DistributedSampler(rows, shuffle=True, seed=6)
    loader = DataLoader(rows, 2, sampler=sampler, collate_fn=PadRight(tokenizer.pad_token_id))
    engine, _, _, _ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=ds_config(len(rows), 2, 8, args.epochs, 1e-5)
    )
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        engine.train()
        for batch in loader:
            batch = {k: v.to(engine.device) for k, v in batch.items()}
            loss = engine(**batch).loss
            engine.backward(loss)
            engine.step()
        if engine.global_rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f} lr {engine.get_lr()[0]:.2e}")
    engine.save_16bit_model("legal-chat")
    if engine.global_rank == 0:
        model.config.save_pretrained("legal-chat")
        tokenizer.save_pretrained("legal-chat")


if __name__ == "__main__":
    main()
